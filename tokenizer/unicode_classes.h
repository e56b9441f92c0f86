/* Made by tests/scripts/make_unicode_tables.py: Oniguruma's classes as the inside of a PCRE2 class, with the
 * characters of Unicode 16 that PCRE2's own Unicode (14 and later) may lack. */

static const struct unicode_class unicode_classes[] = {
    {"l letter", false,
     "\\p{L}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d"
     "6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x"
     "{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"
     "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b1"
     "32}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{"
     "2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"m mark", false,
     "\\p{M}\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2"
     "}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11"
     "f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x"
     "{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"},
    {"n number", false,
     "\\p{N}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}"
     "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"},
    {"p punctuation punct", false,
     "\\p{P}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{1"
     "1be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"},
    {"s symbol", false,
     "\\p{S}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}\\x{1cc00}-\\x{1cce"
     "f}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1"
     "f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}"
     "\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fb"
     "cb}-\\x{1fbef}"},
    {"z separator", false, "\\p{Z}"},
    {"c other", true,
     "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Z}\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{1c89}-\\x{1c8a}\\x{"
     "2427"
     "}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{1"
     "05f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"
     "\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113"
     "c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x"
     "{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3"
     "a}\\x{11f3e}-\\x{11f5a}\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{"
     "16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}\\x{1df25}-"
     "\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{1e5ff}\\x{1f6dc}\\x{1f77"
     "4}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{"
     "1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}"
     "-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b739}\\x{2ebf0}-\\x{2e"
     "e5d}\\x{31350}-\\x{323af}"},
    {"cn unassigned", true,
     "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{Cc}\\p{Cf}\\p{Co}\\x{897}\\x{cf3}\\x{ece}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{"
     "1c8"
     "9}-\\x{1c8a}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a"
     "7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d85}\\x{10d8e}-\\x{10d8f}\\x{10ec2}-\\x{10ec4}\\"
     "x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b"
     "7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{113e1}-\\x{"
     "113e2}\\x{116d0}-\\x{116e3}\\x{11b00}-\\x{11b09}\\x{11bc0}-\\x{11be1}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10"
     "}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f5a}\\x{1342f}\\x{13439}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1"
     "6139}\\x{16d40}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\"
     "x{1d2d3}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{1e5f"
     "f}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1"
     "fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-"
     "\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}\\x{2b7"
     "39}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"lu uppercaseletter", false, "\\p{Lu}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"},
    {"ll lowercaseletter", false, "\\p{Ll}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"},
    {"lt titlecaseletter", false, "\\p{Lt}"},
    {"lm modifierletter", false,
     "\\p{Lm}\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}\\x{1e4eb}"},
    {"lo otherletter", false,
     "\\p{Lo}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}"
     "-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f0"
     "2}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{"
     "1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\"
     "x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"mn nonspacingmark", false,
     "\\p{Mn}\\x{897}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113bb}-\\x{113c0}\\x{113ce}\\x{11"
     "3d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f36}-\\x{11f3a}\\x{11f40}\\x{11f42}\\x{11f5a}\\x{"
     "13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{16129}\\x{1612d}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}"
     "-\\x{1e5ef}"},
    {"mc spacingmark", false,
     "\\p{Mc}\\x{cf3}\\x{113b8}-\\x{113ba}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113cf}\\x{"
     "1171e}\\x{11f03}\\x{11f34}-\\x{11f35}\\x{11f3e}-\\x{11f3f}\\x{11f41}\\x{1612a}-\\x{1612c}"},
    {"me enclosingmark", false, "\\p{Me}"},
    {"nd decimalnumber", false,
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139"
     "}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"},
    {"digit", false,
     "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139"
     "}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"},
    {"nl letternumber", false, "\\p{Nl}"},
    {"no othernumber", false, "\\p{No}\\x{1d2c0}-\\x{1d2d3}"},
    {"pc connectorpunctuation", false, "\\p{Pc}"},
    {"pd dashpunctuation", false, "\\p{Pd}\\x{10d6e}"},
    {"ps openpunctuation", false, "\\p{Ps}"},
    {"pe closepunctuation", false, "\\p{Pe}"},
    {"pi initialpunctuation", false, "\\p{Pi}"},
    {"pf finalpunctuation", false, "\\p{Pf}"},
    {"po otherpunctuation", false,
     "\\p{Po}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}\\x{"
     "11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"},
    {"sm mathsymbol", false, "\\p{Sm}\\x{10d8e}-\\x{10d8f}"},
    {"sc currencysymbol", false, "\\p{Sc}"},
    {"sk modifiersymbol", false, "\\p{Sk}"},
    {"so othersymbol", false,
     "\\p{So}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ce"
     "b3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{"
     "1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}"
     "-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"},
    {"zs spaceseparator", false, "\\p{Zs}"},
    {"zl lineseparator", false, "\\p{Zl}"},
    {"zp paragraphseparator", false, "\\p{Zp}"},
    {"cc control cntrl", false, "\\p{Cc}"},
    {"cf format", false, "\\p{Cf}\\x{13439}-\\x{1343f}"},
    {"co privateuse", false, "\\p{Co}"},
    {"arabic", false, "\\p{sc:Arabic}\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"},
    {"armenian", false, "\\p{sc:Armenian}"},
    {"bengali", false, "\\p{sc:Bengali}"},
    {"bopomofo", false, "\\p{sc:Bopomofo}"},
    {"common", false,
     "\\p{sc:Common}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}"
     "-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f"
     "8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\"
     "x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf"
     "8}\\x{1fbcb}-\\x{1fbef}"},
    {"cyrillic", false, "\\p{sc:Cyrillic}\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}"},
    {"devanagari", false, "\\p{sc:Devanagari}\\x{11b00}-\\x{11b09}"},
    {"ethiopic", false, "\\p{sc:Ethiopic}"},
    {"georgian", false, "\\p{sc:Georgian}"},
    {"greek", false, "\\p{sc:Greek}"},
    {"gujarati", false, "\\p{sc:Gujarati}"},
    {"gurmukhi", false, "\\p{sc:Gurmukhi}"},
    {"han", false, "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"hangul", false, "\\p{sc:Hangul}"},
    {"hebrew", false, "\\p{sc:Hebrew}"},
    {"hiragana", false, "\\p{sc:Hiragana}\\x{1b132}"},
    {"kannada", false, "\\p{sc:Kannada}\\x{cf3}"},
    {"katakana", false, "\\p{sc:Katakana}\\x{1b155}"},
    {"khmer", false, "\\p{sc:Khmer}"},
    {"lao", false, "\\p{sc:Lao}\\x{ece}"},
    {"latin", false, "\\p{sc:Latin}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}"},
    {"malayalam", false, "\\p{sc:Malayalam}"},
    {"mongolian", false, "\\p{sc:Mongolian}"},
    {"myanmar", false, "\\p{sc:Myanmar}\\x{116d0}-\\x{116e3}"},
    {"sinhala", false, "\\p{sc:Sinhala}"},
    {"tamil", false, "\\p{sc:Tamil}"},
    {"telugu", false, "\\p{sc:Telugu}"},
    {"thai", false, "\\p{sc:Thai}"},
    {"tibetan", false, "\\p{sc:Tibetan}"},
    {"[:punct:]", false,
     "\\p{P}\\p{S}\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d"
     "6e}\\x{10d8e}-\\x{10d8f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x"
     "{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1e5ff}\\x{1f6dc}\\x{1f774}-\\x{1f776"
     "}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1"
     "fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\"
     "x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"},
    {"alpha alphabetic", false,
     "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}\\x{1dd3}-\\x{1de6}\\"
     "x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d69}\\x{10d6f}-\\x{10d85}\\"
     "x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138"
     "e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{1"
     "13d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1342f}\\"
     "x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612e}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b15"
     "5}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2"
     "b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"alnum", false,
     "\\p{Alphabetic}\\p{Nd}\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}\\x{1dd3}-\\x{"
     "1de6}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}\\x{10d6f}-\\x{1"
     "0d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\"
     "x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113c"
     "d}\\x{113d1}\\x{113d3}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{1"
     "1f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{11f50}-\\x{11f59}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}"
     "\\x{16100}-\\x{1612e}\\x{16130}-\\x{16139}\\x{16d40}-\\x{16d6c}\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b1"
     "55}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}\\x{1e4f0}-\\x"
     "{1e4f9}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"upper uppercase", false, "\\p{Uppercase}\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"},
    {"lower lowercase", false,
     "\\p{Lowercase}\\x{10fc}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{10d70}-\\x{10d85}\\x{1df25}-\\"
     "x{1df2a}\\x{1e030}-\\x{1e06d}"},
    {"word", false,
     "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7"
     "dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x"
     "{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7"
     "}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{1"
     "16e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}"
     "\\x{11f50}-\\x{11f5a}\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16"
     "d6c}\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x"
     "{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af"
     "}"},
    {"\\w", false,
     "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}-\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{"
     "1c8a"
     "}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f"
     "}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1"
     "138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\"
     "x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f"
     "12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f50}-\\x{11f5a}\\x{1342f}\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x"
     "{16100}-\\x{16139}\\x{16d40}-\\x{16d6c}\\x{16d70}-\\x{16d79}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9"
     "}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2e"
     "bf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"space", false,
     "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}-\\x{2029}\\x{202f}\\x{205f}\\x{3000}"},
    {"whitespace", false,
     "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}-\\x{2029}\\x{202f}\\x{205f}\\x{3000}"},
    {"nonspace", false,
     "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
     "\\x"
     "{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"},
    {"blank", false, "\\x{9}\\x{20}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}"},
    {"xdigit", false, "\\x{30}-\\x{39}\\x{41}-\\x{46}\\x{61}-\\x{66}"},
};
