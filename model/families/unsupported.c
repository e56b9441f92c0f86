/* What quire lacks for each model_type that transformers 5.24 knows and quire does not run. tests/scripts/
 * list_model_types.py prints those that are neither here nor a family. */
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

enum {
    EXPERTS = 1,
    LATENT = 2,
    RECURRENT = 4,
    VISION = 8,
    AUDIO = 16,
    ENCODER = 32,
    SERIES = 64,
    OTHER = 128,
    MIXED_HEADS = 256,
    SPARSE = 512,
    SHARED = 1024,
    BARE = 2048,
};

static const struct {
    unsigned part;
    const char *name;
} parts[] = {
    {VISION, "vision"},
    {AUDIO, "audio"},
    {ENCODER, "an encoder"},
    {RECURRENT, "its kind of recurrent layers"},
    {LATENT, "its latent attention (MLA)"},
    {EXPERTS, "its mixture of experts"},
    {SERIES, "time series in place of text"},
    {OTHER, "layers of a kind of its own"},
    {MIXED_HEADS, "a mixture of attention heads (MoA)"},
    {SPARSE, "sparse attention, to tokens that an indexer chooses"},
    {SHARED, "blocks of attention that several layers share, with an adapter (LoRA) of each layer"},
    {BARE, "recurrent layers alone, without any attention"},
};

/* Words, separated by spaces. */
static const struct {
    unsigned parts;
    const char *model_types;
} table[] = {
    {EXPERTS, "aria_text deepseek_ocr2_text ernie4_5_vl_moe_text inkling_text minimax_m3_vl_text qwen3_omni_moe_text"},
    {MIXED_HEADS, "jetmoe"},
    {SPARSE, "deepseek_v32 glm_moe_dsa"},
    {LATENT | EXPERTS, "axk1 axk2 hy_v4 longcat_flash"},
    {RECURRENT, "falcon_mamba mamba recurrent_gemma rwkv xlstm zamba"},
    {SHARED, "zamba2"},
    {BARE, "mamba2"},
    {RECURRENT | EXPERTS, "jamba qwen4_exp_text zaya"},
    {RECURRENT | LATENT | EXPERTS, "glm5_next_text"},
    {EXPERTS | OTHER, "deepseek_v4 diffusion_gemma_text"},
    {OTHER, "biogpt codegen cpmant ctrl gpt-sw3 gpt_neo gpt_neox_japanese modernbert-decoder openai-gpt xglm"},
    {OTHER, "bitnet blt blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher "
            "cohere_compass_text diffllama doge gemma3n_text gemma4_assistant gemma4_unified_assistant "
            "gemma4_unified_text hrm_text "
            "muse_glimmer_assistant muse_glimmer_text reformer voxtral_realtime_text xlnet"},
    {ENCODER, "EvollaModel albert bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small bros "
              "camembert canine convbert data2vec-text deberta deberta-v2 distilbert dpr electra encoder-decoder ernie "
              "esm esmc esmfold2 eurobert evolla flaubert fnet fsmt funnel ibert jina_embeddings_v3 layoutlm led lilt "
              "longformer longt5 luke m2m_100 marian markuplm mbart megatron-bert mobilebert modernbert mpnet mra mt5 "
              "mvp nomic_bert nystromformer pegasus pegasus_x plbart prophetnet rag rembert roberta "
              "roberta-prelayernorm roc_bert roformer splinter squeezebert t5 t5_gemma_module t5gemma tapas trocr umt5 "
              "xlm xlm-roberta xlm-roberta-xl xmod yoso"},
    {EXPERTS | ENCODER, "nllb-moe openai_privacy_filter switch_transformers"},
    {VISION, "aimv2 aimv2_text_model aimv2_vision_model align align_text_model align_vision_model altclip "
             "altclip_text_model altclip_vision_model beit bit blip blip-2 blip_2_qformer "
             "blip_2_vision_model blip_text_model blip_vision_model bridgetower bridgetower_text_model "
             "bridgetower_vision_model chameleon chameleon_vqgan chinese_clip chinese_clip_text_model "
             "chinese_clip_vision_model chmv2 clip clip_text_model clip_vision_model clipseg clipseg_text_model "
             "clipseg_vision_model cohere_compass cohere_compass_vision colmodernvbert colpali colqwen2 "
             "conditional_detr convnext convnextv2 cosmos3_edge cosmos3_edge_text cosmos3_edge_vision cosmos3_omni cvt "
             "d_fine dab-detr data2vec-vision deepseek_ocr2_encoder deepseek_ocr2_sam_vision_model "
             "deepseek_ocr2_vision deepseek_vl deepseek_vl_hybrid deformable_detr deimv2 deit depth_anything depth_pro "
             "detr dinat dinov2 dinov2_with_registers dinov3_convnext dinov3_vit donut-swin dpt edgetam edgetam_video "
             "edgetam_vision_model efficientloftr efficientnet emu3 emu3_text_model emu3_vqgan eomt eomt_dinov3 "
             "ernie4_5_vl_moe_vision exaone4_5_vision fast_vlm flava flava_image_model "
             "flava_multimodal_model flava_text_model florence2 florence_vision focalnet fuyu gemma3n_vision "
             "gemma4_unified_vision gemma4_vision git git_vision_model glm46v glm4v_moe_vision "
             "glm4v_vision glm5_next_vision glm_image glm_image_text glm_image_vision glm_image_vqmodel glm_ocr "
             "glm_ocr_text glm_ocr_vision glmga glpn got_ocr2 grounding-dino "
             "groupvit groupvit_text_model groupvit_vision_model hgnet_v2 hiera hunyuan_vl hunyuan_vl_text "
             "hunyuan_vl_vision idefics idefics2 idefics2_perceiver idefics2_vision idefics3_vision "
             "idefics_perciever idefics_vision ijepa imagegpt inkling_vision instructblip instructblip_qformer "
             "instructblip_vision_model instructblipvideo instructblipvideo_qformer instructblipvideo_vision_model "
             "internvl_vision janus janus_vision_model janus_vqgan kimi_k25_vision kosmos-2 kosmos-2.5 "
             "kosmos_2_5_text_model kosmos_2_5_vision_model kosmos_2_text_model kosmos_2_vision_model levit lfm2_vl "
             "lightglue lighton_ocr llama4_vision_model lw_detr "
             "lw_detr_vit mask2former maskformer maskformer-swin metaclip_2 metaclip_2_text_model "
             "metaclip_2_vision_model mgp-str minicpmv4_6 minicpmv4_6_vision minimax_m3_vl_vision mlcd "
             "mlcd_vision_model mllama mllama_text_model mllama_vision_model mm-grounding-dino mobilenet_v1 "
             "mobilenet_v2 mobilevit mobilevitv2 muse_glimmer muse_glimmer_vision omdet-turbo oneformer ovis2 owlv2 "
             "owlv2_text_model owlv2_vision_model owlvit owlvit_text_model owlvit_vision_model paddleocr_vl "
             "paddleocr_vl_text paddleocr_vl_vision paligemma pe_video pe_video_encoder perception_lm "
             "phi4_multimodal_vision pi0 pix2struct pix2struct_text_model pix2struct_vision_model pixio pixtral "
             "poolformer pp_chart2table pp_doclayout_v2 pp_doclayout_v3 pp_formulanet pp_lcnet pp_lcnet_v3 pp_lcnet_v4 "
             "pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec pp_ocrv6_medium_det "
             "pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec prompt_depth_anything pvt pvt_v2 qianfan_ocr "
             "qianfan_ocr_vision qwen2_5_omni_vision_encoder qwen2_5_vl_vision "
             "qwen2_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder "
             "qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision radio regnet resnet rf_detr "
             "rf_detr_dinov2 rt_detr rt_detr_resnet rt_detr_v2 sam sam2 sam2_hiera_det_model sam2_video "
             "sam2_vision_model sam3 sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder sam3_lite_text "
             "sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder "
             "sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder sam3_tracker sam3_tracker_video "
             "sam3_video sam3_vision_model sam3_vit_model sam_hq sam_hq_vision_model sam_vision_model sapiens2 "
             "sapiens2_head segformer seggpt shieldgemma2 siglip siglip2 siglip2_text_model siglip2_vision_model "
             "siglip_text_model siglip_vision_model slanet slanext smolvlm_vision step3p5_vision superglue "
             "superpoint swiftformer swin swin2sr swinv2 table-transformer textnet timesformer timm_backbone "
             "timm_wrapper tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model tvp upernet uvdoc uvdoc_backbone "
             "video_llama_3 video_llama_3_vision videomae videomt videoprism videoprism_text_model "
             "videoprism_vision_model vilt vision-text-dual-encoder vit vit_mae vit_msn vitdet vitmatte "
             "vitpose vitpose_backbone vivit vjepa2 xclip xclip_text_model xclip_vision_model yolos zoedepth"},
    {VISION | ENCODER,
     "layoutlmv2 layoutlmv3 layoutxlm lxmert modernvbert neomme nougat perceiver t5gemma2 t5gemma2_decoder "
     "t5gemma2_encoder t5gemma2_text udop vision-encoder-decoder visual_bert"},
    {VISION | AUDIO, "gemma3n gemma4_unified pe_audio_video pe_audio_video_encoder phi4_multimodal qwen2_5_omni "
                     "qwen2_5_omni_text qwen2_5_omni_thinker"},
    {VISION | EXPERTS, "aria deepseek_ocr2 diffusion_gemma ernie4_5_vl_moe minimax_m3_vl"},
    {VISION | LATENT | EXPERTS, "kimi_k25"},
    {VISION | AUDIO | EXPERTS, "inkling_mm_model qwen3_omni_moe qwen3_omni_moe_thinker"},
    {VISION | RECURRENT | EXPERTS, "qwen4_exp"},
    {VISION | RECURRENT | LATENT | EXPERTS, "glm5_next"},
    {AUDIO, "audio-spectrogram-transformer audioflamingo3 audioflamingo3_encoder bark canary canary_decoder clap "
            "clap_audio_model clap_text_model clvp clvp_decoder clvp_encoder cohere_asr csm csm_depth_decoder_model "
            "dac data2vec-audio dia dia_decoder dia_encoder encodec fastspeech2_conformer "
            "fastspeech2_conformer_hifigan fastspeech2_conformer_with_hifigan fun_asr_nano fun_asr_nano_encoder "
            "gemma3n_audio gemma4_audio gemma4_unified_audio glmasr glmasr_encoder granite_speech granite_speech5_ctc "
            "granite_speech5_encoder granite_speech_encoder granite_speech_plus granite_speech_plus_encoder "
            "higgs_audio_v2 higgs_audio_v2_tokenizer hubert inkling_audio kyutai_speech_to_text lasr_ctc lasr_encoder "
            "mimi moonshine moonshine_streaming moonshine_streaming_encoder moshi moshi_depth musicflamingo musicgen "
            "musicgen_decoder musicgen_melody musicgen_melody_decoder nemotron3_5_asr nemotron_asr_streaming "
            "nemotron_asr_streaming_encoder neucodec parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt "
            "pe_audio pe_audio_encoder phi4_multimodal_audio pop2piano qwen2_5_omni_audio_encoder "
            "qwen2_5_omni_bigvgan qwen2_5_omni_dit qwen2_5_omni_talker qwen2_5_omni_token2wav qwen2_audio "
            "qwen2_audio_encoder qwen3_asr qwen3_asr_encoder qwen3_omni_moe_audio_encoder "
            "qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text seamless_m4t seamless_m4t_v2 sew sew-d "
            "speech-encoder-decoder speech_to_text speecht5 speecht5_hifigan unispeech unispeech-sat univnet "
            "vibevoice vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder "
            "vibevoice_acoustic_tokenizer_encoder vibevoice_asr vits voxtral voxtral_encoder voxtral_realtime "
            "voxtral_realtime_encoder wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm whisper xcodec xcodec2"},
    {SERIES, "autoformer decision_transformer informer patchtsmixer patchtst time_series_transformer timesfm "
             "timesfm2_5"},
    /* What 5.24 has beside 5.17 */
    {EXPERTS, "beam flint kolibri1 sarvam_moe"},
    {LATENT | EXPERTS, "dots3_note_text sarvam_mla"},
    {RECURRENT, "lfm3"},
    {RECURRENT | EXPERTS, "inkling2_loop inkling2_loop_text inkling2_text lara_mini"},
    {RECURRENT | LATENT | EXPERTS, "bailing_hybrid"},
    {OTHER, "apertus1p5_text dory granite_docling_text jev"},
    {ENCODER, "embedding_gemma2_text gte ultrabert ultravbert"},
    {VISION, "apertus1p5_vision_tokenizer dots3_note_vision_encoder edgetam_mask_decoder "
             "edgetam_prompt_encoder edgetam_video_mask_decoder edgetam_video_prompt_encoder "
             "flava_image_codebook got_ocr2_vision granite_docling granite_docling_vision hy_v4_vl_vision "
             "hyperclovax_vision_v2 inkling2_vision lfm3_vl_vision minicpm_ocr minicpm_ocr_vision minicpmv4_7 "
             "minicpmv4_7_vision molmo2 molmo2_adapter molmo2_text molmo2_vision muse_spark_vision "
             "ovis2_vision pp_chart2table_vision pp_doclayout_v4 pp_formulanet_text pp_formulanet_vision "
             "sam2_mask_decoder sam2_prompt_encoder sam2_video_mask_decoder sam2_video_prompt_encoder "
             "sam3_tracker_mask_decoder sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder "
             "sam3_tracker_video_prompt_encoder sam_hq_mask_decoder sam_hq_prompt_encoder sam_mask_decoder "
             "sam_prompt_encoder slanext_vision unlimited_ocr_sam_vision_model unlimited_ocr_vision "
             "unlimited_ocr_vision_encoder"},
    {VISION | EXPERTS, "muse_spark_text unlimited_ocr unlimited_ocr_text"},
    {VISION | LATENT | EXPERTS, "hy_v4_vl hy_v4_vl_text mistral_large4 mistral_large4_text"},
    {VISION | AUDIO, "apertus1p5"},
    {VISION | AUDIO | EXPERTS, "muse_spark"},
    {VISION | RECURRENT, "lfm3_vl"},
    {VISION | RECURRENT | EXPERTS, "inkling2"},
    {AUDIO, "dots3_note_audio_encoder gradium_phonon_tts mimi_decoder mimi_encoder moss_transcribe_diarize "
            "moss_transcribe_diarize_audio muse_spark_audio nemo_speechlm nemotron3_5_transcribe_asr_audio "
            "nemotron3_5_transcribe_audio nemotron3_5_transcribe_word_timestamp nemotron3_diarization "
            "nemotron3_diarization_audio omniasr omniasr_audio omniasr_ctc pocket_tts "
            "pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder "
            "pocket_tts_audio_tokenizer_encoder vibevoice_diffusion wavtokenizer wavtokenizer_encoder"},
    {VISION | AUDIO | LATENT | EXPERTS, "dots3_note"},
    {AUDIO | ENCODER, "embedding_gemma2"},
    {VISION | AUDIO | RECURRENT | EXPERTS, "nemotron_h_omni"},
};

/* "a, b and c" */
static struct missing_parts list_parts(unsigned missing)
{
    struct missing_parts list = {""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!(missing & parts[i].part)) continue;
        const size_t n = strlen(list.text);
        missing &= ~parts[i].part;
        snprintf(list.text + n, sizeof list.text - n, "%s%s", n == 0 ? "" : missing ? ", " : " and ", parts[i].name);
    }
    return list;
}

struct missing_parts family_missing_parts(const char *model_type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (words_have(table[i].model_types, model_type)) return list_parts(table[i].parts);
    return (struct missing_parts){""};
}
