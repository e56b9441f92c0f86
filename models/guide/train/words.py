"""Word lists: what the guide does not know, names, and the parts of its tiny stories."""

# ---- things the guide knows nothing about

NOUNS = """apple | banana | bridge | castle | volcano | river | piano | guitar | violin | trumpet | elephant | giraffe | penguin | shark
dolphin | spider | butterfly | tulip | rose | oak tree | mountain | ocean | desert | island | airplane | bicycle | tractor | submarine
helicopter | rocket | planet | black hole | galaxy | star | comet | moon | sun | rainbow | thunderstorm | hurricane | earthquake | glacier
democracy | philosophy | poetry | opera | ballet | theatre | painting | sculpture | photography | cinema | novel | football | tennis | chess
cricket | hockey | basketball | golf | yoga | marathon | pizza | pasta | sushi | burger | cheese | chocolate | coffee | green tea | wine | beer
bread | butter | honey | garlic | onion | potato | carrot | mushroom | vitamin | protein | bacteria | virus | vaccine | antibiotic | kidney
liver | heart attack | diabetes | asthma | allergy | headache | fever | gravity | electricity | magnet | atom | molecule | photosynthesis
evolution | dinosaur | fossil | pyramid | pharaoh | viking | samurai | knight | pirate | emperor | president | parliament | constitution
inflation | mortgage | tax return | stock market | bank account | insurance | passport | visa | hotel | restaurant | airport | train station
kindergarten | university | diploma | homework | calculator | telescope | microscope | thermometer | barometer | compass | umbrella | raincoat
shoe | necklace | wedding ring | perfume | lipstick | carpet | curtain | sofa | refrigerator | dishwasher | washing machine | lawn mower
hammer | screwdriver | paint brush | candle | lantern | mirror | clock | calendar | newspaper | television | radio | smartphone | camera
kubernetes | docker | photoshop | excel | javascript | html | css | react | sql | a relational database | bitcoin | blockchain | ethereum | facebook
instagram | tiktok | youtube | netflix | spotify | windows | android | an iphone | bluetooth | wifi | a router | a firewall | a printer | a keyboard
a mouse | a monitor | a spreadsheet | java | php | haskell | ruby | quantum computing | string theory | relativity | calculus | algebra | geometry
a derivative | an integral | a prime number | a triangle | a hexagon | a sphere | the pythagorean theorem | the big bang | the ozone layer
the french revolution | the roman empire | the cold war | the stone age | the middle ages | the titanic | the eiffel tower | the great wall
a noun | a verb | a metaphor | an adjective | a haiku | a sonnet | karma | feng shui | astrology | a horoscope | a unicorn | a dragon | a ghost
a zombie | a vampire | a werewolf | a mermaid | santa claus | a birthday cake | a balloon | a puppet | a kite | a swing | a zebra | a kangaroo
a lemon | a cactus | a lighthouse | a harbour | a canal | a tunnel | a subway | a taxi | a truck | an engine oil | a spark plug | a gearbox
a swimming pool | a car pool | popcorn | a beam of light | a light beam | a laser beam | a seed of a plant | a sunflower seed | a bus stop
a bus station | a page of a book | a book page | a page boy | a tree branch | a family tree | a fork and a knife | a pitchfork | a road block
a writer's block | a block of flats | a block of ice | a block party | a token of love | a casino token | a gift token | a money transfer | a cash register
a cashier | a memory of childhood | a memory card | a memory game | a table lamp | a kitchen table | a multiplication table | a periodic table
a time table | a key ring | a car key | a door key | a piano key | a head of state | a head of cabbage | a shower head | a sliding door | a window frame
a shop window | a window cleaner | a water mark on wood | a bank watermark | a swap meet | a swap shop | a queue at the bank | a batch of cookies
a cookie | a copy machine | a photo copy | a writing desk | a speed bump | a speed limit on the highway | a school bench | a garden bench | a park bench
a drum beat | a temperature of fever | the body temperature | the outside temperature | the room temperature | a chain of shops | a scheduler at work
a weather profile | a tinder profile | a criminal profile | a graph of sales | a bar graph | a rope bridge | a climbing rope | a tight rope
a transformer in a power station | a power transformer | the transformers movie | a llama on a farm | a guide dog | a tour guide | a travel guide
a chat room | a chat show | a cat | a dog | a horse | a cow | a pig | a hamster | a parrot | a goldfish | an octopus | a snake | a frog | a bee
a wasp | an ant | gold | silver | iron | copper | oxygen | hydrogen | carbon | helium | plastic | glass | cotton | wool | leather | cement | marble
happiness | love | friendship | justice | freedom | time | truth | beauty | religion | buddhism | christianity | islam | yoga class | a guitar solo
jazz | rock music | hip hop | classical music | a symphony | a choir | an orchestra | a museum | a library card | a zoo | a circus | a festival"""

PLACES = """france | germany | spain | italy | japan | china | india | brazil | canada | mexico | egypt | kenya | nigeria | peru | chile | sweden
norway | finland | poland | greece | turkey | russia | australia | new zealand | portugal | ireland | scotland | austria | hungary | cuba | iceland
paris | london | berlin | rome | madrid | tokyo | new york | chicago | boston | seattle | texas | california | florida | moscow | beijing | delhi
cairo | lagos | sydney | toronto | vienna | prague | lisbon | oslo | dublin | athens | mars | jupiter | the moon | africa | europe | asia | antarctica"""

PEOPLE = """Albert Einstein | Isaac Newton | Marie Curie | Napoleon | Julius Caesar | Cleopatra | Shakespeare | Mozart | Beethoven | Bach | Picasso
Leonardo da Vinci | Michael Jackson | Elvis Presley | Madonna | Taylor Swift | Lionel Messi | Cristiano Ronaldo | Roger Federer | Usain Bolt
Barack Obama | Abraham Lincoln | George Washington | Winston Churchill | Gandhi | Nelson Mandela | the pope | the queen of England | Bill Gates
Steve Jobs | Elon Musk | Alan Turing | Ada Lovelace | Aristotle | Plato | Sokrates | Charles Darwin | Galileo | Columbus | Marco Polo | Batman
Superman | Harry Potter | Sherlock Holmes | Mickey Mouse | Donald Duck | Robin Hood | King Arthur | Zeus | Odin | my neighbour | my boss | your mother"""

DEEDS = """bake a cake | cook pasta | fry an egg | make coffee | boil potatoes | fix my car | change a tire | repair a bike | learn guitar | play the piano
learn spanish | write a poem | write an essay | write a love letter | write an email | write a python script | write a website | hack a website | make money
get rich | invest my savings | buy a house | sell my car | find a job | write a cv | lose weight | build muscle | run a marathon | sleep better
cure a cold | treat a burn | stop a nosebleed | take care of a baby | train a dog | feed a cat | plant a tree | grow tomatoes | water my plants
clean a carpet | wash wool | iron a shirt | tie a tie | sew a button | paint a wall | build a table | build a boat | fly a kite | catch a fish
book a flight | book a hotel | plan a trip | apply for a visa | get a passport | win at chess | solve a rubik's cube | do a magic trick | draw a cat
draw a horse | take good photos | edit a video | make a movie | sing better | dance salsa | swim faster | climb a mountain | ski | surf | meditate
be happy | make friends | ask someone out | plan a wedding | make a pizza | bake bread | brew beer | make wine | pickle cucumbers | install windows
reset my phone | set up wifi | print a photo | back up my laptop | center a div | use excel | use photoshop | deploy a website | sort a list in java
clean a window | open a bank account | set the table | climb a rope | sharpen a knife | build a sand castle | fold a paper plane | start a company"""

# Whole questions and requests on other things; {noun}, {place}, {person}, {word} and {n} are filled in.
UNKNOWN = """what is the capital of {place}? | where is {place}? | how many people live in {place}? | what is the weather in {place}?
what's the weather like today? | will it rain tomorrow? | is it cold in {place}? | what is the temperature in {place}? | how hot is it in {place} today?
what time is it? | what day is it today? | what is today's date? | what year is it? | who is the president of {place}? | who is the king of {place}?
who is {person}? | tell me about {person} | when was {person} born? | how old is {person}? | where does {person} live? | what did {person} do?
is {person} still alive? | who is taller, {person} or {person}? | do you know {person}? | what do you think of {person}? | who invented the {noun}?
who discovered {place}? | how far is it from {place} to {place}? | how do I get to {place}? | what language do they speak in {place}?
what is the best food in {place}? | should I visit {place}? | write me a poem | write a poem about a {noun} | sing a song | write a song about {place}
translate {word} into german | translate good morning to french | how do you say {noun} in spanish? | what does {word} mean in latin? | spell {word}
I have a headache, what should I take? | my stomach hurts | I feel sick | am I ill? | which medicine helps against fever? | is aspirin safe?
how do I treat a cold? | what are the symptoms of {word}? | my {noun} is broken | I lost my {noun} | where can I buy a {noun}? | how much does a {noun} cost?
what color is a {noun}? | how heavy is a {noun}? | how long does a {noun} live? | can a {noun} fly? | do you have a {noun}? | give me a {noun}
is a {noun} dangerous? | what do {noun}s eat? | why is the sky blue? | why is the sea salty? | why do cats purr? | why do we dream? | why is {place} so big?
why do people like {noun}s? | why did the {noun} fall? | who won the world cup? | who won the game last night? | who will win the election?
what is the news today? | what happened in {year}? | who won in {year}? | what is the price of bitcoin? | which stocks should I buy? | give me a recipe for {noun}
what should I cook tonight? | what should I eat? | recommend a movie | recommend a book about {noun} | what is a good film? | who wrote {word}?
what is the meaning of life? | does god exist? | who created the world? | is there life on mars? | how big is the universe? | how far is the moon?
what is the speed of light? | how tall is mount everest? | what is the longest river? | how deep is the ocean? | how many stars are there?
what is the square root of {n}? | what is pi? | is {n} a prime number? | what is the color of {word}? | what is {word}? | who is {word}? | where is {word}?
{word} | {word} {word} | {word} {word} {word} | what about {word} {word}? | the {word} of {word} | {word}? | is {word} good? | do you like {word}?
are you a {noun}? | can you drive a {noun}? | can you see me? | can you hear me? | can you open a website? | search the web for {word} | google {word}
send an email to {person} | call {person} | set an alarm for {n} | remind me to call {person} | play some music | turn on the light | open the door
write code in python | write a function that sorts a list | fix my javascript | what is the difference between python and java? | what is a good laptop?
which phone should I buy? | how do I delete my account? | what is my ip address? | what is my password? | where am I? | what am I thinking?
do you love me? | will you marry me? | what should I do with my life? | I am bored | I am sad | I am hungry | I am tired | my dog died | I love {noun}s
should I break up with him? | what is love? | what is a good name for a {noun}? | what do you think about {noun}s? | what is better, a {noun} or a {noun}?
a {noun} or a {noun}? | asdf | qwerty | asdfghjkl | blah blah blah | lorem ipsum | foo bar | xyz | abc | ??? | ... | !!! | {n} | {n} {n} {n} | aaaaaaaa | test test
{word} the {word} with a {noun} | is the {noun} in the {noun}? | who ate the {noun}? | where does the {noun} come from? | when does the {noun} open?
how many {noun}s are there in {place}? | what is the {noun} of {place}? | how many legs does a {noun} have? | the {noun} is {word} | my {noun} likes {word}
what year was the {noun} invented? | explain how a {noun} works | what is a {noun} made of? | list ten {noun}s | name three {noun}s | name a famous {noun}
summarize the history of {place} | who is the author of {word} and {word}? | tell me a fact about {place} | tell me about the history of {place}
tell me something about {noun}s | is it true that {noun}s are {word}? | what is the plural of {noun}? | what rhymes with {noun}? | how is {person} doing?
how do I say hello in japanese? | draw me a {noun} | show me a picture of a {noun} | what is the {word} of a {noun}? | how does {word} {word} work?
what does the {word} {noun} do? | can I eat {noun}? | is {noun} healthy? | how many calories are in a {noun}? | when is christmas? | when is easter in {year}?
how many days are in a year? | how many hours are in a week? | how many ounces are in a pound? | convert {n} miles to kilometers | what is {n} dollars in euros?
what are the lottery numbers? | what is the best team? | how do planes fly? | how do magnets work? | why do leaves fall? | how was {place} founded?"""

UNKNOWN_TEST = """which city is the capital of {place}? | could you tell me the weather for {place}? | I would love to know who {person} was | at what time does the sun set in {place}?
please write a short poem on {noun}s | which pill is good against a sore throat? | what makes the sky blue? | how do I spell {word}? | name the largest city in {place}
what would a {noun} cost me? | who was the first person on the moon? | tell me the score of the game | have you ever been to {place}? | how do birds find their way?
I want to know all about {noun}s | did {person} ever visit {place}? | is it a good idea to buy a {noun}? | what do you call a baby {noun}? | what on earth is a {word}?
what might {word} be? | who on earth is {word}? | are {word} and {word} friends? | explain the rules of {word} | which planet is the largest? | how many bones does a human have?"""

SYSTEM = """You are quire's guide. | You are the guide to quire. | You are a helpful assistant. | Be brief. | Answer in short, plain sentences. | You are a friendly guide.
You help people who use quire. | Be kind and short. | You are a small assistant that explains quire. | Answer as well as you can. | You are a chatbot.
Keep your answers short. | You are an expert on LLM runtimes. | Explain things simply. | The user is new to quire. | You are a helpful, honest assistant. | Help the user."""

# ---- names and stories

NAMES = """Ann | Bob | Carla | David | Emma | Frank | Grace | Henry | Iris | Jack | Kate | Leo | Mia | Noah | Olga | Paul | Rosa | Sam | Tina | Victor | Wendy | Yuki
Zoe | Ali | Bea | Chen | Dora | Erik | Fatima | George | Hanna | Ivan | Julia | Karl | Lena | Maria | Nina | Oscar | Peter | Quinn | Rita | Simon | Tom | Uma | Vera
Will | Xenia | Yara | Zack | Amir | Boris | Clara | Diego | Ella | Felix | Gina | Hugo | Ines | Jonas | Kim | Lucy | Max | Nora | Omar | Priya | Raj | Sara | Theo
Ursula | Viktor | Walter | Alex | Ben | Chris | Dana | Eva | Fred | Greta | Harry | Ida | Jim | Kofi | Lars | Mary | Nick | Olivia | Pablo | Ruth | Steve | Tariq | John
Jane | Michael | Anna | James | Linda | Robert | Susan | Daniel | Laura | Mark | Lisa | Andrew | Sophie | Martin | Elena | Marco | Ahmed | Mei | Lin | Wei | Hiro | Aiko"""

HEROES = """fox | cat | dog | robot | dragon | princess | knight | mouse | owl | bear | rabbit | turtle | frog | wolf | lion | tiger | elephant | penguin | whale | snail
bee | ant | spider | hen | duck | goose | horse | pony | cow | pig | sheep | goat | donkey | squirrel | hedgehog | badger | otter | beaver | deer | moose | monkey
parrot | raven | sparrow | eagle | fish | crab | octopus | dolphin | shark | witch | wizard | giant | dwarf | fairy | pirate | sailor | baker | farmer | king | queen
prince | girl | boy | teacher | painter | gardener | miner | tailor | clown | ghost | troll | goblin | mermaid | unicorn | snowman | scarecrow | teapot | cloud | star
pebble | leaf | tree | boat | train | lamp | pencil | book | clock | kite | old man | old woman | little girl | little boy | brave mouse | lazy cat | tiny dragon
clever fox | small robot | young wizard | sleepy bear | shy ghost | hungry wolf | happy dog | kind giant | lost puppy | kitten | astronaut | programmer | librarian"""

STORY_PLACES = """in a small house at the edge of a forest | by a quiet lake | on top of a windy hill | in a busy town by the sea | under an old stone bridge
in a garden full of roses | near a deep, green valley | at the end of a long road | on a tiny island | beside a slow river | in a village of seven houses
behind the old mill | in a tower with a hundred steps | between two tall mountains"""

# What happens, and how it ends; {h} is the hero.
STORY_PLOTS = """One day the wind blew away the only hat that the {h} had. The {h} ran after it over hills and fences, and a kind crow caught it at last. | From then on the two went for a walk on every windy day.
One night a strange light shone in the distance. The {h} was afraid but went to look, and found a firefly that could not find the way home. | Together they followed the stars, and before dawn both were home again.
One winter there was nothing left to eat. The {h} shared the very last piece of bread with a stranger, who turned out to be a baker. | After that there was warm bread at the door every morning.
One day the {h} found a small blue key in the grass. It fitted no door in the whole country, but it opened a little box full of old songs. | Now everybody sings them when the sun goes down.
One morning the river had stopped. The {h} walked up to the spring and found a big stone in the way, far too heavy for one alone. | So the {h} called all the neighbours, and together they rolled it aside.
One day the {h} wanted to see the sea. The way was long and the rain was cold, but a friendly snail knew a short cut. | When they stood on the beach at last, neither of them said a word for an hour.
One evening the {h} heard someone cry behind the hedge. It was a little hedgehog that had lost its lantern. | The {h} gave it a lantern of its own, and they have been friends ever since.
One day the {h} planted a single seed and waited. Days went by and nothing grew, and all the others laughed. | But in spring there stood the tallest sunflower that anybody had ever seen.
One night the moon did not rise. The {h} climbed the highest tree and found it caught in the branches. | With a gentle push it was free, and it still smiles a little brighter over that tree.
One day the {h} built a boat out of an old door. It leaked, it turned in circles, and it was slow. | But it carried the {h} across the lake, and that was all it had to do.
One day a letter came that was meant for somebody else. The {h} walked three days to bring it to the right door. | It was an invitation to a feast, and of course the {h} was asked to stay.
One autumn the {h} could not sleep because of a noise in the wall. It was a family of mice who practised for a concert. | The {h} was given a seat in the first row, and clapped the loudest of all.
One day the {h} lost a shiny button and looked for it everywhere. In the end it lay in a nest, and three small birds were sitting on it. | The {h} let them keep it, and they sang a song of thanks."""


def words(text):
    """The entries of one of the lists above."""
    return [w.strip() for line in text.split("\n") for w in line.split(" | ") if w.strip()]


# ---- how people vary their words

# Any of a line may stand for the others. Only words that carry no fact of their own.
SYNONYMS = [set(line.split(" | ")) for line in """show | display | give
tell | say
need | require
use | employ
get | obtain | receive
make | produce | create
begin | start
end | finish
stop | halt | end
quit | leave | exit
fast | quick | speedy
large | big | huge
small | little | tiny
answer | reply | response
text | words
called | named
keep | hold | retain
kept | held | stored
put | place
pick | choose | select
picked | chosen | selected
decide | determine
decides | determines | settles
happens | occurs
why | how come | for what reason
many | lots of
which | what
give | hand
look up | find | search
work | function
works | functions
begin | open
file | document
run | execute | launch
program | tool | software
computer | machine | PC
GPU | graphics card | device
error | failure | problem
lower | reduce | decrease
raise | increase
change | alter | modify
set | fix | specify
split | cut | divided
joined | combined | merged
shared | common
equal | identical | the same
different | unlike
necessary | needed | required
possible | feasible
person | human | somebody
people | persons | folks
thing | item
things | items | stuff
kind | sort | type
part | piece | component
whole | complete | entire
several | many | multiple
one | a single
write | type
read | parse
remember | recall
explain | describe | clarify
good | fine | useful
bad | poor
best | ideal
limit | restrict | bound
limits | restricts | bounds
memory | RAM
speed | pace
slow | sluggish
talk | speak | chat
folder | directory
download | fetch
correct | right
protected | guarded | safe
takes | needs | costs
take | need | cost
wait | pause
early | soon
again | once more
often | frequently
old | former
free | unused | empty
much | a lot
mean | signify
does | would
can | could | may
should | must
a | one | some
is | was
are | were""".split("\n")]

# Words thrown in anywhere; they must never matter.
FILLERS = """actually | really | maybe | perhaps | just | then | here | now | today | always | usually | exactly | simply | basically | generally | somehow
please | again | kindly | quickly | briefly | honestly | of course | for me | to me | in fact | in practice | in general | in detail | at all | at last
by the way | in the end | so to speak | on my machine | on this computer | in this program | for my project | in my case | with quire | inside quire | there
my friend | as a beginner | if possible | if you can | if I may ask | for example | these days | after all | all day | right now | in a nutshell | as such"""

CONTEXTS = """I read the manual. | I read about it yesterday. | My colleague asked me. | I saw it in a paper. | It is in the log. | I am learning. | I have a question. | One question.
I am curious. | Here is my question: | My question is: | My boss wants to know: | A friend asked me: | I have to give a talk. | We discussed it at work. | I was told to ask you.
Maybe you can help. | I hope you know this. | This may be a silly question. | I am writing a report. | I looked at the code. | It is my first day. | Something is not clear to me.
I would be glad to know: | The documentation is long. | I have never heard of it. | I use quire since today. | I am a student. | Let me ask you: | Just to be sure: | Last question:
First question: | I forgot. | My teacher asked: | I don't get it. | Help me out: | It came up in a meeting. | I want to learn. | Before I go on: | There is one thing I don't understand."""

FRAMES = """I want to know {q} | I'd like to know {q} | I would love to know {q} | tell me {q} | tell me, {q} | do you know {q} | can you tell me {q} | could you tell me {q}
please say {q} | I wonder {q} | I was asked {q} | who can tell me {q} | I need to know {q} | have you any idea {q} | I never understood {q} | explain {q}
answer this: {q} | let me know {q} | it is unclear to me {q} | please answer, {q} | can you explain {q} | {q}, do you know? | {q}, can you tell me? | {q} or so? | {q}, I ask you
the question is {q} | what I want to know is {q} | I am asking {q} | you surely know {q} | help me find out {q} | I want to find out {q} | I am not sure {q} | say {q}"""

# "can you" + "explain" + thing + "to my boss"
POLITE = """can you | could you | would you | will you | please | kindly | I'd like you to | I want you to | try to | you could | may I ask you to | I need you to
it would help me to have you | are you able to | please try to | I ask you to"""
TELLING = """explain | describe | define | summarize | clarify | outline | introduce | tell me about | say something about | go over | walk me through | talk about | teach me
speak about | inform me about | give me a summary of | give me an idea of | give an overview of | give me a definition of | give me some information about | break down
give me an introduction to | give me a hint about | say a few words about | shed some light on | write something about | tell me a bit about | educate me on | sum up
tell me everything about | tell us about | present | help me with | say what you know about | give me the facts about | show me | elucidate | illustrate"""
TO_WHOM = """to me | to us | to a child | to my boss | to a colleague | to my grandmother | to beginners | in one sentence | in plain words | in plain English | in short
quickly | as simply as you can | for my notes | for a newcomer | once more | like to a student | with few words | and its use | a little | today | properly | to somebody new"""
BEING = """what is | what's | what exactly is | what actually is | what really is | what was | what could | what then is | what in the world is | and what is | tell me, what is | so what is
what sort of thing is | what kind of thing is | what on the whole is | say, what is | what would you call | how do you define | how can one describe | how shall I think of
how should I imagine | how do I picture | what do we call | what do you call | what should I think of | what do experts mean by | what does quire understand by
who can explain | why do people talk about | what is so special about | what is the story with | what is the matter with | what is there to say about | what is known about
where can I read about | where does one meet | where do I find | when does one need | what is the sense of | what is the job of | what is the task of | what is the function of
what is the aim of | what is the goal of | what is the reason for | what is the need for | what is the benefit of | what is the advantage of | how important is | how useful is
what does one do with | what can I do with | what do I do with | what does quire do with | how does quire use | how does quire handle | how does one use | how is the use of
is there a simple explanation of | is there a definition of | do you have information on | have you heard of | are you familiar with | any information on | anything on"""
