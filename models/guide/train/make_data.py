"""Writes the guide's conversations: the training text and the held-out test.

    python make_data.py --test                    heldout.jsonl, beside this file
    python make_data.py --sample 5                prints five conversations
    python make_data.py --text FILE --count N     N conversations as plain text, for the tokenizer
    python make_data.py --rows FILE --count N     N packed rows of token ids for train.py (needs ../tokenizer.model)

A conversation is a list of (user, assistant) turns. Everything follows from the seed. What the held-out test asks is
built from forms (HELD_* and the `test:` lines) that training never uses, and training stops with an error if it
ever produces one of the test's texts.
"""
import argparse
import json
import multiprocessing
import os
import random
import re

import words
from facts import HERE, load

FACTS, TALK = load("facts.txt"), load("talk.txt")

DONT_KNOW = "I don't know that. I am a small guide to quire; ask me about blocks, prefix caching, or how to run a batch."
NO_MORE = "That is all I know about that. Ask me about another part of quire."
MORE_OF_WHAT = "Tell you more about what? Ask me about blocks, prefix caching, or how to run a batch."
TOO_LONG = "That is too long for me. I count at most 50 numbers, from 0 up to 999."
NO_SUM = "I can only add and subtract whole numbers below 100. Try 12 plus 30."
BELOW_ZERO = "{a} minus {b} is below zero, and I know only numbers from 0 up."
NAME_GREETING = "Nice to meet you, {name}. What would you like to know?"
NAME_ANSWER = "Your name is {name}."
NO_NAME = "You have not told me your name yet."
ASKED = "You asked about {topic}."
ASKED_FIRST = "The first thing you asked about was {topic}."
ASKED_NOTHING = "You have not asked me anything yet."
NOTHING_TO_REPEAT = "I have not said anything yet."


def lines(text):
    return [line.strip() for line in text.strip().split("\n")]


# ---- how things are asked: {x} is a name as it stands ("a block table"), {X} without its article

THING = lines("""
what is {x}?
what's {x}?
what is {x}?
whats {X}
{X}
{X}?
explain {x}
explain {x} to me
tell me about {x}
define {X}
definition of {X}
how does {x} work?
how do you explain {x}?
what does {X} mean?
what does {X} mean in quire?
what does {x} do?
can you explain {x}?
could you explain {x} to me?
would you explain {x} please
what do you know about {x}?
I don't understand {x}
I do not understand {x} yet
I want to know about {x}
I want to understand {x}
I would like to learn about {x}
I'd like to hear about {x}
describe {x}
describe {X} in one sentence
give me a short explanation of {x}
give me the definition of {X}
give me an explanation of {X}
the meaning of {X}
what is meant by {X}?
what is the meaning of {X}?
what do people mean by {X}?
what is {x} for?
what is {x} used for?
what is {x} good for?
why does quire have {x}?
why do we need {x}?
why is there {x}?
what is the point of {x}?
what is the purpose of {x}?
what is the use of {x}?
what is the role of {x}?
teach me about {x}
teach me what {x} is
help me understand {x}
in quire, what is {x}?
what is {x} in quire?
what is {x} in an LLM runtime?
say something about {x}
I keep reading about {x}
I keep hearing about {x}, what is it?
somebody mentioned {x}, what is that?
the manual speaks of {x}, what is that?
{X}, what is that?
{X}: what does it mean?
what exactly is {x}?
what is {x} exactly?
what precisely is {x}?
in simple words, what is {x}?
in short, what is {x}?
explain {x} in simple terms
explain {x} like I'm five
explain {x} for a beginner
explain {X} in a few words
quick question: what is {x}?
and {x}?
and what is {x}?
what about {x}?
how about {x}?
do you know what {x} is?
do you know {x}?
can you tell me what {x} is?
can you tell me about {x}?
can you tell me something about {x}?
please tell me what {x} is
please tell me about {x}
I wonder what {x} is
I have no idea what {x} is
I forgot what {x} is
I have a question about {x}
I need to know what {x} is
info on {X}
{X} explained
{X} explanation
{X} meaning
what can you tell me about {x}?
what can you say about {x}?
tell me what {x} is
tell me what {X} means
tell me how {x} works
I'd like to know how {x} works
how exactly does {x} work?
do you understand {x}?
where is {x} used?
when do I need {x}?
when would I use {x}?
what happens with {x}?
is {x} important?
talk to me about {x}
summarize {x}
give me the basics of {X}
I read the word {X}, what does it stand for?
what kind of thing is {x}?
who or what is {x}?
what was {x} again?
""")
HELD_THING = lines("""
remind me what {x} is
give me the short version of {x}
could you describe {x} for me?
what should I know about {x}?
how would you explain {x} to a friend?
I am trying to understand {x}
what is the idea behind {x}?
let's talk about {x}
would you mind telling me what {x} is?
{X} - what is it?
""")
DO = lines("""
how do I {d}?
how can I {d}?
how do you {d}?
how does one {d}?
how would I {d}?
how should I {d}?
how to {d}
how to {d}?
how could I {d}?
I want to {d}
I would like to {d}
I'd like to {d}
I need to {d}
I have to {d}
I am trying to {d}
what is the command to {d}?
what command do I use to {d}?
what do I type to {d}?
what must I do to {d}?
what can I do to {d}?
show me how to {d}
tell me how to {d}
please explain how to {d}
explain how I can {d}
can you tell me how to {d}?
can you explain how to {d}?
do you know how to {d}?
is there a way to {d}?
is there an option to {d}?
is it possible to {d}?
can I {d}?
can quire {d}?
what is the way to {d}?
what is the best way to {d}?
help me {d}
I don't know how to {d}
where do I start if I want to {d}?
which option do I need to {d}?
teach me how to {d}
what if I want to {d}?
and how do I {d}?
{d}
""")
HELD_DO = lines("""
what should I run to {d}?
any idea how to {d}?
could you walk me through how to {d}?
what is the right way to {d}?
what would you do to {d}?
""")
WHY = lines("""
explain why {c}
why is it that {c}?
do you know why {c}?
can you tell me why {c}?
can you explain why {c}?
how come {c}?
what is the reason that {c}?
I don't get why {c}
I don't understand why {c}
I wonder why {c}
tell me why {c}
I read that {c}, why?
why do people say that {c}?
what does it mean that {c}?
""")
HELD_WHY = lines("""
help me see why {c}
for what reason is it so that {c}?
""")
VS = lines("""
what is the difference between {a} and {b}?
what's the difference between {a} and {b}?
difference between {a} and {b}
{a} vs {b}
{a} versus {b}
{a} or {b}?
compare {a} and {b}
compare {a} with {b}
how does {a} differ from {b}?
how do {a} and {b} differ?
how is {a} different from {b}?
is {a} the same as {b}?
are {a} and {b} the same?
explain the difference between {a} and {b}
tell me the difference between {a} and {b}
what is better, {a} or {b}?
which is better, {a} or {b}?
I mix up {a} and {b}
why is {a} not the same as {b}?
can you compare {a} and {b}?
""")
HELD_VS = lines("""
what sets {a} apart from {b}?
what distinguishes {a} from {b}?
{a} and {b}: how are they different?
""")
OPENERS = lines("""
hey,
hi,
hello,
please,
ok,
okay,
so,
well,
now,
sorry,
excuse me,
I'm new here,
I am new to this,
quick question,
one more thing,
another question,
thanks,
thank you,
great,
got it.
um,
tell me,
next question:
and
but
also,
good morning,
hey guide,
I am a beginner,
""")
CLOSERS = ["please", "thanks", "in quire", "in quire?", "briefly", "in one sentence", "in simple words", "I am curious", "if you know",
           "for me", "thank you", "and why", "now"]

MORE = lines("""
is that all?
is that all you know?
what more is there?
could you say more?
could you explain that in more detail?
can you go into detail?
give me some more
some more please
a bit more please
a little more about that
tell me a little more
can you go deeper?
deeper please
go further
why is it useful?
why do I need that?
why would that matter?
why is it done like that?
what does that mean for me?
how does that help?
what is the use of that?
what is the point of that?
is that important?
why should I care?
say something more about it
I did not fully understand, tell me more
that is not enough
what follows from that?
do you know more about it?
is there anything more to say about it?
add something to that
please explain that a bit more
how is that important?
tell me more
tell me more about that
tell me more about it
more
more please
more about that
can you say more about that?
can you say more?
can you tell me more?
why does that matter?
why does it matter?
why is that useful?
why is this useful?
go on
please go on
continue
please continue
what else?
anything else?
anything else about that?
give me more detail
more details
more details please
I want to know more
I want to know more about that
I'd like to know more
can you elaborate?
elaborate
expand on that
keep going
interesting, tell me more
okay, tell me more
thanks, tell me more
say more
explain that further
explain more
explain in more detail
is there more to it?
and what else?
what is that good for?
why?
how so?
""")
HELD_MORE = lines("""
could you tell me a bit more?
what more can you say about it?
why is that important?
say some more about that
go a little deeper
""")
ASK_BACK = lines("""
what question did I ask?
which question did I ask?
which question did I ask you last?
what was the last question I put to you?
say what I asked
please tell me my last question
can you remember what I asked?
can you remember my last question?
do you recall what I asked you?
do you recall my question?
remind me of my question
remind me of what we talked about
what did I say before?
what did I want to know?
what did I want to know just now?
can you tell me what I just asked?
my last question was what?
about what did I ask you?
what have I just asked?
what did I just ask?
what did I just ask you?
what was my question?
what was my last question?
what did I ask?
what did I ask you?
what was the question?
what did I ask about?
what were we talking about?
what is it that I asked?
do you remember my question?
do you remember what I asked?
do you know what I asked?
what was my previous question?
what did I ask before?
tell me what I asked
I forgot my question
I forgot what I asked
what are we talking about?
""")
HELD_ASK_BACK = lines("""
which question did I put to you just now?
remind me what I asked you last
can you recall my last question?
""")
ASK_FIRST = lines("""
what was the very first thing I asked?
which question did I ask first?
how did I begin?
how did this conversation begin?
how did our talk start?
what did I ask you at the start?
with which question did I begin?
what did we talk about first?
what was the first question?
what was my first question?
what did I ask first?
what was the first thing I asked?
what did I ask you at first?
do you remember my first question?
what did I ask at the beginning?
""")
HELD_ASK_FIRST = ["how did my questions begin?"]
REPEAT = lines("""
please say that again
could you say that again?
could you repeat that?
please repeat that
please repeat your answer
can you repeat your last answer?
repeat your last answer
repeat it once again
say it once more please
tell me again
your last answer again please
I did not catch that
what was that again?
what was your answer?
repeat that
say that again
please repeat
can you repeat that?
repeat your answer
what did you say?
what did you just say?
again please
once more
say it again
can you say that again?
sorry, what?
pardon?
""")
HELD_REPEAT = ["would you repeat your last answer?", "please say it once again"]
TELL_NAME = lines("""
hello, I am {n}
hello, this is {n}
hi, this is {n}
hello there, my name is {n}
good morning, I am {n}
everyone calls me {n}
my friends call me {n}
you may call me {n}
here is {n}
{n} here
{n} is speaking
I go by {n}
remember my name: {n}
my name is {n}, please remember it
my name is {n}, nice to meet you
nice to meet you, I am {n}
my name is {n}
My name is {n}.
my name's {n}
I am {n}
I'm {n}
call me {n}
you can call me {n}
please call me {n}
hi, I am {n}
hello, my name is {n}
hi, my name is {n}
hey, I'm {n}
I am called {n}
this is {n}
{n} is my name
people call me {n}
by the way, my name is {n}
""")
HELD_TELL_NAME = ["hello, this is {n} speaking", "everybody calls me {n}"]
ASK_NAME = lines("""
do you still know my name?
could you tell me my name?
could you say my name?
please say my name
can you say what I am called?
how do you call me?
how am I called?
by which name am I called?
what do people call me?
which name do I have?
which name did I give you?
did I tell you my name?
under what name do you know me?
do you know who I am?
do you remember who I am?
what is my name?
what's my name?
do you know my name?
do you remember my name?
who am I?
tell me my name
what am I called?
say my name
what did I say my name was?
can you tell me my name?
what was my name?
my name?
and what is my name?
""")
HELD_ASK_NAME = ["could you say what my name is?", "by what name do you know me?"]

PLUS = lines("""
what do {a} and {b} sum to?
to what do {a} and {b} come?
{a} and {b} come to what?
what do {a} and {b} give?
what do {a} and {b} add up to?
to what do {a} and {b} add up?
{a} and {b} give what?
what would {a} and {b} be in all?
could you add {a} and {b}?
could you tell me {a} plus {b}?
can you work out {a} plus {b}?
work out {a} + {b}
please work out {a} plus {b}
please calculate {a} + {b}
please tell me {a} + {b}
can you tell me what {a} plus {b} is?
tell me what {a} + {b} is
tell me how much {a} + {b} is
I want to know {a} + {b}
I need {a} plus {b}
I need to add {a} and {b}
give me the sum of {a} and {b}
find the sum of {a} and {b}
the total of {a} and {b}
what is the total of {a} and {b}?
what is the result of {a} + {b}?
what comes out of {a} plus {b}?
what do you get for {a} + {b}?
what do {a} and {b} make?
what do {a} and {b} make together?
{a} and {b} together
how much are {a} and {b} together?
{a} with {b} added
{a} more than {b}
what is {b} more than {a}?
{a} cats and {b} dogs, how many animals are there?
there are {a} birds and {b} more come, how many are there?
I read {a} pages and then {b} pages, how many in all?
do you know {a} + {b}?
what is {a} plus {b}?
what's {a} plus {b}?
what is {a} + {b}?
{a} + {b}
{a}+{b}
{a}+{b}?
{a}+{b}=
{a} + {b} = ?
{a} plus {b}
{a} and {b}?
add {a} and {b}
add {b} to {a}
please add {a} and {b}
can you add {a} and {b}?
how much is {a} plus {b}?
how much is {a} + {b}?
how much is {a} and {b}?
calculate {a} + {b}
calculate {a} plus {b}
compute {a}+{b}
sum of {a} and {b}
what is the sum of {a} and {b}?
the sum of {a} and {b}
tell me {a} plus {b}
what do I get if I add {a} and {b}?
what does {a} plus {b} make?
what is {a} added to {b}?
{a} plus {b} equals
what does {a} + {b} equal?
I have {a} apples and get {b} more, how many do I have?
if I have {a} and add {b}, what do I get?
solve {a} + {b}
""")
HELD_PLUS = lines("""
could you work out {a} plus {b} for me?
what do {a} and {b} come to?
please tell me what {a} + {b} makes
I need the sum of {a} and {b}
put {a} and {b} together
""")
MINUS = lines("""
{b} of {a} are gone, what remains?
of {a} birds {b} are gone, how many remain?
how many of {a} remain without {b}?
how many are there when {b} of {a} go?
if {b} of {a} are lost, how many remain?
could you tell me {a} minus {b}?
can you work out {a} minus {b}?
work out {a} - {b}
please work out {a} minus {b}
please calculate {a} - {b}
please tell me {a} - {b}
tell me what {a} - {b} is
tell me how much {a} minus {b} is
can you tell me what {a} minus {b} is?
can you subtract {b} from {a}?
I need to subtract {b} from {a}
what is the result of {a} - {b}?
what comes out of {a} minus {b}?
what do you get for {a} - {b}?
reduce {a} by {b}
what is {b} less than {a}?
what is {b} taken from {a}?
{b} of {a} are broken, how many are whole?
{b} of my {a} eggs broke, how many are left?
when {b} of {a} birds fly away, how many stay?
how many are left if {b} of {a} leave?
if {b} of the {a} apples are eaten, how many remain?
{a} people are here and {b} go home, how many stay?
how much remains of {a} without {b}?
what remains of {a} when I take {b}?
from {a} take {b}
do you know {a} - {b}?
what is {a} minus {b}?
what's {a} minus {b}?
what is {a} - {b}?
{a} - {b}
{a}-{b}
{a}-{b}?
{a}-{b}=
{a} minus {b}
subtract {b} from {a}
please subtract {b} from {a}
take {b} away from {a}
take {b} from {a}
how much is {a} minus {b}?
how much is {a} - {b}?
calculate {a} - {b}
calculate {a} minus {b}
compute {a}-{b}
what is {a} less {b}?
what is the difference of {a} and {b}?
tell me {a} minus {b}
what is left if I take {b} from {a}?
what does {a} minus {b} make?
I have {a} apples and give away {b}, how many are left?
if I have {a} and take away {b}, what is left?
solve {a} - {b}
""")
HELD_MINUS = lines("""
could you work out {a} minus {b} for me?
please tell me what {a} - {b} makes
how many remain when {b} of {a} are gone?
""")
OTHER_SUM = lines("""
what is {a} times {b}?
{a} * {b}
{a} x {b}
{a}*{b}
multiply {a} by {b}
multiply {a} and {b}
divide {a} by {b}
what is {a} divided by {b}?
{a} / {b}
{a}/{b}
how much is {a} times {b}?
how much is {a} / {b}?
what is {a} to the power of {b}?
{a}^{b}
what is {a} percent of {b}?
calculate {a} times {b}
""")
AND_PLUS = lines("""
and {b} on top?
{b} on top of that
put {b} more to it
put another {b} to that
what if I add {b}?
what if I add {b} more?
what is that plus {b}?
what is that + {b}?
that plus {b}?
and another {b}?
another {b} more
then add {b}
can you add {b} to it?
give it {b} more
increase it by {b}
please add {b}
and plus {b}?
plus {b}?
plus {b}
and {b} more?
now add {b}
add {b}
add {b} more
and if I add {b}?
add {b} to that
then plus {b}
+ {b}
+{b}
and + {b}?
""")
HELD_AND_PLUS = ["what if you add another {b}?", "now put {b} on top"]
AND_MINUS = lines("""
what is that minus {b}?
that minus {b}?
what if I take away {b}?
what if I subtract {b}?
without {b} of them?
and without {b}?
and {b} less?
{b} less
then subtract {b}
can you take {b} from it?
reduce it by {b}
please subtract {b}
what is left without {b}?
and minus {b}?
minus {b}?
minus {b}
now subtract {b}
subtract {b}
take away {b}
now take away {b}
take {b} away from that
then minus {b}
- {b}
""")
HELD_AND_MINUS = ["what is left without {b} of them?"]

COUNT = lines("""
write the numbers from {a} to {b}
write down the numbers from {a} to {b}
write all numbers from {a} to {b}
give me the numbers from {a} to {b}
give me all numbers from {a} to {b}
show the numbers from {a} to {b}
tell me the numbers from {a} to {b}
all numbers from {a} to {b}
all the numbers between {a} and {b}
what are the numbers from {a} to {b}?
which numbers are there from {a} to {b}?
could you count from {a} to {b}?
will you count from {a} to {b}?
I would like you to count from {a} to {b}
I want to hear you count from {a} to {b}
let me hear you count from {a} to {b}
count for me from {a} to {b}
count from {a} until you reach {b}
count on from {a} to {b}
counting from {a} to {b}
begin at {a} and count to {b}
begin with {a} and count up to {b}
start with {a} and go up to {b}
go from {a} to {b}
go from {a} up to {b}
go on from {a} to {b}
how do you count from {a} to {b}?
from {a} to {b}, count please
from {a} to {b}
{a} to {b}
{a}, and so on up to {b}
count from {a} to {b}
count {a} to {b}
can you count from {a} to {b}?
please count from {a} to {b}
count the numbers from {a} to {b}
count from {a} up to {b}
count up from {a} to {b}
list the numbers from {a} to {b}
say the numbers from {a} to {b}
numbers from {a} to {b}
start at {a} and count to {b}
I want you to count from {a} to {b}
""")
HELD_COUNT = ["would you count for me from {a} until {b}?", "write down all numbers from {a} to {b}", "begin with {a} and go on counting up to {b}"]
COUNT_TO = ["count to {b}", "count up to {b}", "can you count to {b}?", "please count to {b}", "count until {b}", "show me how you count to {b}", "could you count to {b}?", "I want you to count to {b}",
            "count for me to {b}", "let me hear you count to {b}", "how does one count to {b}?", "are you able to count to {b}?", "count from one to {b}",
            "count as far as {b}", "try to count to {b}", "will you count up to {b}?", "counting to {b}", "the numbers up to {b}"]
HELD_COUNT_TO = ["how do you count to {b}?", "I would like you to count to {b}"]
COUNT_DOWN = ["count down from {a}", "count backwards from {a}", "count down from {a} please", "do a countdown from {a}", "countdown from {a}",
              "can you count down from {a}?", "could you count down from {a}?", "count down starting at {a}", "count down beginning with {a}",
              "start at {a} and count down", "start the countdown at {a}", "would you count backwards from {a}?", "go down from {a}", "go backwards from {a}",
              "countdown {a}", "from {a} downwards"]
HELD_COUNT_DOWN = ["would you count down starting at {a}?"]
COUNT_DOWN_TO = ["count down from {a} to {b}", "count backwards from {a} to {b}", "count from {a} down to {b}", "countdown from {a} to {b}", "go down from {a} to {b}", "start at {a} and count down to {b}",
                 "count in reverse from {a} to {b}", "numbers from {a} down to {b}", "go back from {a} to {b}", "can you count down from {a} to {b}?"]
HELD_COUNT_DOWN_TO = ["go backwards from {a} to {b}"]
COUNT_BY = ["count by {s} from {a} to {b}", "count from {a} to {b} by {s}", "count from {a} to {b} in steps of {s}", "count in {s} from {a} to {b}",
            "can you count from {a} to {b} by {s}?", "from {a} to {b} in {s}", "count up by {s} from {a} to {b}",
            "start at {a} and count by {s} to {b}", "go from {a} to {b} in steps of {s}", "go from {a} to {b} by {s}", "numbers from {a} to {b} in steps of {s}",
            "please count by {s} from {a} to {b}", "could you count in {s} from {a} up to {b}?", "begin with {a} and go by {s} up to {b}",
            "count by {s}, from {a} to {b}", "go by {s} from {a} and stop at {b}"]
HELD_COUNT_BY = ["go from {a} to {b} and count by {s}"]

STORY = lines("""
could you tell me a story about {h}?
could you tell a story with {h}?
can I hear a story about {h}?
may I hear a tale about {h}?
invent a story about {h}
invent a tale about {h}
make up a tale about {h}
think of a story about {h}
a tale of {h}
the tale of {h}
a bedtime story about {h}
a short story with {h}
a story with {h}
a story for my son about {h}
my son wants to hear about {h}, tell a story
the children want a story about {h}
let me hear a story about {h}
let's hear a story of {h}
I'd like to hear a tale of {h}
tell us a story about {h}
tell my daughter a story about {h}
write a tiny tale about {h}
narrate a story about {h}
story: {h}
tell me a story about {h}
tell me a story about {h}
tell a story about {h}
a story about {h}
a story about {h} please
tell me a tale about {h}
tell me a short story about {h}
tell me a little story about {h}
write a story about {h}
write me a story about {h}
can you tell me a story about {h}?
can you tell a story about {h}?
please tell me a story about {h}
I want a story about {h}
I want to hear a story about {h}
I would like a story about {h}
story about {h}
do you know a story about {h}?
make up a story about {h}
give me a story about {h}
tell me something about {h} who had an adventure
once upon a time there was {h}
another story, about {h}
now a story about {h}
""")
HELD_STORY = ["could I hear a story with {h} in it?", "invent a short story about {h} for me", "my daughter wants a story about {h}"]
ANY_STORY = ["tell me a story", "tell a story", "a story please", "can you tell me a story?", "I want a story", "story", "tell me a tale",
             "write a story", "make up a story", "tell me a bedtime story", "please tell me a story",
             "could you tell me a story?", "I would like a story", "I would like to hear a story", "let me hear a story", "may I hear a story?", "any story",
             "a bedtime story", "tell us a story", "invent a story", "I want to hear a story", "story please", "tell me some story", "now a story"]
HELD_ANY_STORY = ["I would love to hear a story now"]
ANOTHER = ["another one", "another one please", "another story", "one more", "one more story", "tell me another", "tell me another one",
           "again, another story", "can you tell another one?", "next story", "a different one", "more stories", "one more please", "another tale", "tell me one more", "tell another story", "one other story", "tell me another story please",
           "could you tell me another story?", "I want another one", "let me hear another one", "let me hear one more", "can I hear another one?",
           "that was nice, another one", "give me another one", "a new story", "again", "and another one"]
HELD_ANOTHER = ["would you tell me one other story?", "let me hear another story"]

UNITS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
         "eighteen nineteen").split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
STEPS = {2: ["twos", "2", "two", "2s"], 3: ["threes", "3", "3s"], 5: ["fives", "5", "five", "5s"], 10: ["tens", "10", "ten", "10s"]}

UNKNOWN, UNKNOWN_TEST = words.words(words.UNKNOWN), words.words(words.UNKNOWN_TEST)
NOUNS, PLACES, PEOPLE = words.words(words.NOUNS), words.words(words.PLACES), words.words(words.PEOPLE)
DEEDS, NAMES, HEROES = words.words(words.DEEDS), words.words(words.NAMES), words.words(words.HEROES)
SYSTEM, STORY_PLACES = words.words(words.SYSTEM), words.words(words.STORY_PLACES)
STORY_PLOTS = [line.split(" | ") for line in lines(words.STORY_PLOTS)]
HELD_LISTS = UNKNOWN_TEST + [form for name, forms in sorted(globals().items()) if name.startswith("HELD_") for form in forms]


def key(text):
    """What two texts have in common that differ only in case, space and punctuation."""
    return " ".join(re.findall(r"[a-z0-9+*/<>=^-]+", text.lower()))


def bare(name):
    """The name without its article."""
    return re.sub(r"^(an?|the) ", "", name)


def article(noun):
    return noun if noun.startswith(("a ", "an ", "the ")) else ("an " if noun[0] in "aeiou" else "a ") + noun


KNOWN_WORDS = {w for f in FACTS + TALK for text in f.thing + f.do + f.ask + f.test + [f.say] for w in re.findall(r"[a-z]+", text.lower())}


def made_up(rng):
    """A word that does not exist, such as 'brondel'."""
    while True:
        word = "".join(rng.choice("b|br|bl|c|ch|d|dr|f|fl|g|gr|h|j|k|kl|l|m|n|p|pl|qu|r|s|sh|st|t|tr|v|w|z|||".split("|"))
                       + rng.choice("a|e|i|o|u|a|e|i|o|oo|ee|ai|y".split("|"))
                       + rng.choice("b|ck|d|f|g|l|m|n|p|r|s|t|x|nd|rt|sk||||||".split("|")) for _ in range(rng.choice((1, 2, 2, 2, 3))))
        if len(word) >= 3 and word not in KNOWN_WORDS:
            return word


def typo(rng, text):
    """Swaps, drops, doubles or replaces one letter inside a longer word."""
    places = [m for m in re.finditer(r"[A-Za-z]{4,}", text)]
    if not places:
        return text
    m = rng.choice(places)
    word, i = m[0], rng.randrange(1, len(m[0]) - 1)
    word = rng.choice((word[:i] + word[i + 1] + word[i] + word[i + 2:], word[:i] + word[i + 1:], word[:i] + word[i] + word[i:],
                       word[:i] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[i + 1:]))
    return text[:m.start()] + word + text[m.end():]


def dress(rng, text, typos=True, keep_case=False, extras=True):
    """The same words as different people type them: openers, closers, case, punctuation, typos."""
    end = text[-1] if text[-1] in "?." else ""
    if extras and rng.random() < 0.16:
        text = rng.choice(OPENERS) + " " + text
    if extras and rng.random() < 0.07:
        text = text.rstrip("?. ") + rng.choice((" ", ", ")) + rng.choice(CLOSERS) + end
    if typos and rng.random() < 0.10:
        text = typo(rng, text)
    style = rng.random()
    if not keep_case:
        if style < 0.35:
            text = text.lower()
        elif style < 0.38:
            text = text.upper()
    if style > 0.55:
        text = text[0].upper() + text[1:]
    style = rng.random()
    if end or style > 0.75:
        if style < 0.25:
            text = text.rstrip("?.")
        elif style < 0.32:
            text = text.rstrip("?.") + rng.choice((" ?", "??", "...", "!", "?!", "."))
        elif style > 0.90 and not end:
            text += rng.choice("?.!")
        elif style > 0.75 and not end:
            text += "."
    return text


def number(rng, n, in_words=True):
    """A number as digits, sometimes in words."""
    if not in_words or n > 99 or rng.random() < 0.85:
        return str(n)
    if n < 20:
        return UNITS[n]
    return TENS[n // 10] + (rng.choice("- ") + UNITS[n % 10] if n % 10 else "")


# ---- variety: the same question in words that no list holds

STOP_WORDS = set("""a an and are as at be by do does for from has have how i if in is it its me my no not of on one or so such than that the their them
then there they this to up was what when where which who why will with you your can each every other into only more most out all any""".split())
SYNONYMS = {}
for group in words.SYNONYMS:
    for word in group:
        SYNONYMS.setdefault(word, []).extend(sorted(group - {word}))
FILLERS, CONTEXTS, FRAMES = words.words(words.FILLERS), words.words(words.CONTEXTS), words.words(words.FRAMES)
POLITE, TELLING, TO_WHOM, BEING = (words.words(text) for text in (words.POLITE, words.TELLING, words.TO_WHOM, words.BEING))
BAG_FORMS = lines("""
what {w}?
which thing {w}?
{w}
{w}?
what is it called when {w}?
what is the {w} called?
at what point {w}?
in what {w}?
by what {w}?
by which {w}?
which {w}?
what kind of {w}?
how many {w}?
how much {w}?
are {w}?
does {w}?
can {w}?
how is it called: {w}
what do you call {w}?
tell me about {w}
something about {w}
how {w}?
when {w}?
where {w}?
who {w}?
why {w}?
is it {w}?
what has to do with {w}?
which part of quire {w}?
in what way {w}?
what about {w}?
explain {w}
""")


def content_words(text):
    return [w for w in re.findall(r"[a-z0-9_-]+", text.lower()) if w not in STOP_WORDS and len(w) > 1]


FACT_WORDS = {f.id: set(content_words(" ".join(f.thing + f.do + f.ask + [f.say, f.more]))) for f in FACTS + TALK}
FREQUENCY = {}
for known in FACT_WORDS.values():
    for word in known:
        FREQUENCY[word] = FREQUENCY.get(word, 0) + 1


def bag(rng, fact):
    """A question from a few words of the fact's answer or questions, enough of them rare to know it by."""
    for _ in range(20):
        source = rng.choice([fact.say, fact.say, fact.more or fact.say] + fact.ask)
        tokens = re.findall(r"[A-Za-z0-9_'+/-]+", source)
        size = rng.randrange(3, 10)
        start = rng.randrange(max(1, len(tokens) - size + 1))
        span = [t for t in tokens[start:start + size] if t.lower() not in STOP_WORDS or rng.random() < 0.6]
        if rng.random() < 0.3:
            span.insert(rng.randrange(len(span) + 1), rng.choice(rng.choice([fact.thing or [""], fact.ask or [""]])).split(" ")[-1].strip("?"))
        if rng.random() < 0.15:
            rng.shuffle(span)
        if sum(1 / FREQUENCY.get(w, 99) for w in set(content_words(" ".join(span)))) >= 0.9:
            return rng.choice(BAG_FORMS).format(w=" ".join(span))
    return rng.choice(fact.ask or fact.thing or fact.do)


SINGLE_NAMES = {w for f in FACTS for n in f.thing + [n for pair in f.vs for n in pair] if " " not in bare(n)
                for w in (bare(n).lower(), bare(n).lower() + "s", bare(n).lower().rstrip("s"))}
DISTRACTORS = sorted({w for known in FACT_WORDS.values() for w in known if w.isalpha()} |
                     {w for n in NOUNS + UNKNOWN + THING for w in content_words(re.sub(r"\{\w+\}", "", n))} - SINGLE_NAMES - {"more", "again", "repeat"})
DISTRACTORS = [w for w in DISTRACTORS if w not in SINGLE_NAMES]


def distract(rng, text, name="", most=3):
    """Throws in words that mean nothing here, though not inside the name: what counts is the name."""
    at = text.find(name) if name else -1
    before, name, after = (text, "", "") if at < 0 else (text[:at], name, text[at + len(name):])
    for _ in range(rng.randrange(1, most + 1)):
        part = rng.random() < len(before) / max(1, len(before) + len(after))
        tokens = (before if part else after).split(" ")
        tokens.insert(rng.randrange(len(tokens) + 1), str(rng.randrange(10 ** rng.randrange(1, 6))) if rng.random() < 0.15 else rng.choice(DISTRACTORS))
        if part:
            before = " ".join(tokens).strip() + (" " if name else "")
        else:
            after = " " + " ".join(tokens).strip()
    return (before + name + after).strip()


def reword(rng, text, strength=1.0):
    """Replaces words by others of much the same meaning, drops some, throws fillers in, puts a frame around."""
    end = "?" if text.endswith("?") else ""
    tokens = text.rstrip("?").split(" ")
    out = []
    for token in tokens:
        if token in SYNONYMS and rng.random() < 0.18 * strength:
            token = rng.choice(SYNONYMS[token])
        if rng.random() < 0.07 * strength and len(tokens) > 3 and (token.lower() in STOP_WORDS or rng.random() < 0.25):
            continue
        if rng.random() < 0.04 * strength:
            out.append(rng.choice(FILLERS) if rng.random() < 0.8 else made_up(rng))
        out.append(token)
    text = " ".join(out or tokens)
    if rng.random() < 0.12 * strength and len(out) > 2:
        return rng.choice(FRAMES).format(q=text)
    if rng.random() < 0.08 * strength:
        text += " " + rng.choice(FILLERS)
    return text + end


def around(rng, name):
    """A way to ask for a name, put together from parts."""
    if rng.random() < 0.55:
        return " ".join(filter(None, (rng.choice(POLITE + [""] * 6), rng.choice(TELLING), name, rng.choice(TO_WHOM + [""] * 10))))
    return " ".join(filter(None, (rng.choice(BEING), name, rng.choice(TO_WHOM + [""] * 30)))) + "?"


def in_context(rng, text):
    """Sometimes a sentence before or after."""
    draw = rng.random()
    if draw < 0.06:
        return rng.choice(CONTEXTS) + " " + text
    if draw < 0.08:
        return text.rstrip("?.") + "? " + rng.choice(CONTEXTS)
    if draw < 0.10:
        return f"my {bare(rng.choice(NOUNS))} is {rng.choice(('fine', 'broken', 'red', 'new', 'old', 'gone'))}, but {text}"
    return text


# ---- one turn of each kind: the user's text and the answer. held: use a form kept for the test

def ask_fact(rng, fact, held=False):
    """A way to ask for the fact."""
    forms = []
    if fact.ask and not held:
        forms += ["ask"] * (8 if fact.thing or fact.do or fact.vs else 1)
    forms += ["thing"] * 5 * bool(fact.thing) + ["do"] * 4 * bool(fact.do) + ["why"] * 3 * bool(fact.why) + ["vs"] * 4 * bool(fact.vs)
    form = rng.choice(forms)
    if held:
        return ask_fact_form(rng, fact, form, held)
    if rng.random() < 0.15:
        return bag(rng, fact)
    if form == "ask":
        text = reword(rng, rng.choice(fact.ask), rng.choice((0, 1, 1, 2)))
        return distract(rng, text, most=1) if rng.random() < 0.12 else text
    if form == "thing" and rng.random() < 0.55:
        name = rng.choice(fact.thing)
        draw = rng.random()
        text = around(rng, name) if draw < 0.6 else plural(rng.choice(THING), bare(name)).format(x=name, X=bare(name))
        return distract(rng, text, name) if rng.random() < 0.6 else text
    text = ask_fact_form(rng, fact, form)
    return text if rng.random() < 0.5 else reword(rng, text, 1.5)


def ask_fact_form(rng, fact, form, held=False):
    """The fact in one of the listed forms."""
    if form == "thing":
        name = fact.thing[0] if rng.random() < 0.25 else rng.choice(fact.thing)
        return plural(rng.choice(HELD_THING if held else THING), bare(name)).format(x=name, X=bare(name))
    if form == "do":
        return rng.choice(HELD_DO if held else DO).format(d=rng.choice(fact.do))
    if form == "why":
        return rng.choice(HELD_WHY if held else WHY).format(c=rng.choice(fact.why))
    a, b = rng.choice(fact.vs)
    if rng.random() < 0.5:
        a, b = b, a
    return rng.choice(HELD_VS if held else VS).format(a=a, b=b)


def plural(form, name):
    """Puts a form into the plural where the name asks for it."""
    if not name.endswith("s") or name.endswith(("ss", "us", "as", "is", "OS", "prefixes")) or "(" in name:
        return form
    for one, many in (("is {x}", "are {x}"), ("does {x}", "do {x}"), ("does {X}", "do {X}"), ("{x} is", "{x} are"), ("{x} works", "{x} work"),
                      ("{X} means", "{X} mean"), ("was {x}", "were {x}"), ("what's {x}", "what are {x}"), ("whats {X}", "what are {X}")):
        form = form.replace(one, many)
    return form


def ask_unknown(rng, held=False):
    """A question on something else: a whole question, or the forms of the facts around a foreign thing."""
    if rng.random() < (0.5 if not held else 0.6):
        form = rng.choice(UNKNOWN_TEST if held else UNKNOWN)
        while "{" in form:      # one at a time, so that no two are the same
            form = re.sub(r"\{(\w+)\}", lambda m: filler(rng, m[1]), form, count=1)
        if held or rng.random() < 0.4:
            return form
        return reword(rng, form) if rng.random() < 0.7 else distract(rng, form, most=2)
    draw = rng.random()
    if draw < 0.6:
        thing = rng.random()
        name = (article(rng.choice(NOUNS)) if thing < 0.3 else rng.choice(NOUNS) if thing < 0.45 else rng.choice(PEOPLE + PLACES) if thing < 0.5 else
                rng.choice(("", "a ", "the ")) + made_up(rng) + rng.choice(("", "", " " + made_up(rng), "s")))
        if not held and rng.random() < 0.4:
            text = around(rng, name)
            return distract(rng, text, bare(name)) if rng.random() < 0.6 else text
        return rng.choice(HELD_THING if held else THING).format(x=name, X=bare(name))
    if draw < 0.85:
        deed = rng.choice(DEEDS) if rng.random() < 0.75 else made_up(rng) + " " + article(bare(rng.choice(NOUNS)))
        return rng.choice(HELD_DO if held else DO).format(d=deed)
    a, b = filler(rng, "noun"), filler(rng, rng.choice(("noun", "word", "place")))
    return rng.choice(HELD_VS if held else VS).format(a=a, b=b)


def filler(rng, kind):
    if kind == "noun":
        return bare(rng.choice(NOUNS))
    if kind == "word":
        return made_up(rng) if rng.random() < 0.7 else bare(rng.choice(NOUNS))
    return {"place": lambda: rng.choice(PLACES), "person": lambda: rng.choice(PEOPLE), "n": lambda: str(rng.randrange(1, 2000)),
            "year": lambda: str(rng.randrange(1200, 2030))}[kind]()


def held_pair(a, b):
    """Sums that training never shows, about one in a hundred; half of the tested sums are of these."""
    return (a * 100 + b) % 97 == 5


def ask_sum(rng, held=False, unseen=False):
    while True:
        a, b = rng.randrange(100), rng.randrange(100)
        if rng.random() < 0.3:
            a, b = rng.randrange(21), rng.randrange(21)
        if rng.random() < 0.7:
            if held_pair(a, b) == unseen:
                form = rng.choice(HELD_PLUS if held else PLUS)
                return form.format(a=number(rng, a), b=number(rng, b)), *do_sum(a, "plus", b)
        elif rng.random() < 0.9 or held:
            a, b = max(a, b), min(a, b)
            if held_pair(a, b) == unseen:
                form = rng.choice(HELD_MINUS if held else MINUS)
                return form.format(a=number(rng, a), b=number(rng, b)), *do_sum(a, "minus", b)
        elif a < b:
            return rng.choice(MINUS).format(a=a, b=b), *do_sum(a, "minus", b)


def do_sum(a, sign, b):
    """The answer and the result, None where there is none."""
    result = a + b if sign == "plus" else a - b
    if result < 0:
        return BELOW_ZERO.format(a=a, b=b), None
    return f"{a} {sign} {b} is {result}.", result


def ask_other_sum(rng):
    """Sums that the guide does not do: other operations, or numbers that are too large."""
    if rng.random() < 0.6:
        return rng.choice(OTHER_SUM).format(a=rng.randrange(100), b=rng.randrange(1, 100)), NO_SUM
    a, b = rng.randrange(100, 20000), rng.randrange(20000)
    if rng.random() < 0.5:
        a, b = b, a
    return rng.choice(PLUS + MINUS).format(a=a, b=b), NO_SUM


def ask_count(rng, held=False):
    """The request, the answer and what was asked about."""
    kind = rng.choice(("from", "from", "to", "down", "down_to", "by"))
    start, step = rng.choice((rng.randrange(21), rng.randrange(100), rng.randrange(100))), 1
    length = rng.choice((rng.randrange(2, 16), rng.randrange(2, 16), rng.randrange(2, 31)))
    forms = {"from": (COUNT, HELD_COUNT), "to": (COUNT_TO, HELD_COUNT_TO), "down": (COUNT_DOWN, HELD_COUNT_DOWN),
             "down_to": (COUNT_DOWN_TO, HELD_COUNT_DOWN_TO), "by": (COUNT_BY, HELD_COUNT_BY)}[kind]
    if not held and rng.random() < 0.05:
        start, end = rng.randrange(1000), rng.randrange(1000, 100000)
        return rng.choice(COUNT + COUNT_TO).format(a=start, b=end), TOO_LONG, "counting"
    if kind == "from":
        end = start + length
    elif kind == "to":
        start, end = 1, rng.choice((length + 1, length + 1, rng.randrange(2, 51)))
    elif kind == "down":
        start, end, step = rng.choice((length + 1, rng.randrange(2, 31))), 1, -1
    elif kind == "down_to":
        start, end, step = start + length, start, -1
    else:
        step = rng.choice(list(STEPS))
        start = rng.choice((step, 0, rng.randrange(30), step * rng.randrange(10)))
        end = start + step * rng.randrange(2, 16)
    text = rng.choice(forms[held]).format(a=number(rng, start), b=number(rng, end), s=rng.choice(STEPS[step]) if step > 1 else "")
    return text, ", ".join(str(n) for n in range(start, end + (1 if step > 0 else -1), step)) + ".", "counting"


def story(hero, told):
    """The tiny story of a hero; told: how many the hero already had in this conversation."""
    start = sum(ord(c) for c in bare(hero)[:2])
    plot, end = STORY_PLOTS[(start + 5 * told) % len(STORY_PLOTS)]
    place = STORY_PLACES[(start + 3 * told) % len(STORY_PLACES)]
    return f"Once upon a time there was {article(hero)} who lived {place}. {plot.format(h=bare(hero))} {end.format(h=bare(hero))} The end."


def ask_story(rng, held=False):
    """The request and its hero."""
    if rng.random() < 0.12:
        return rng.choice(HELD_ANY_STORY if held else ANY_STORY), "turtle"
    hero = rng.choice(HEROES) if rng.random() < 0.7 else rng.choice((bare(rng.choice(NOUNS)), made_up(rng), made_up(rng) + " " + rng.choice(HEROES)))
    if rng.random() < 0.15:         # a hero of two words, the first of any kind
        hero = rng.choice((rng.choice(DISTRACTORS), made_up(rng))) + " " + hero
    named = hero + "s" if rng.random() < 0.05 and " " not in hero and hero[-1] not in "syxhfe" else article(hero)
    return rng.choice(HELD_STORY if held else STORY).format(h=named), hero


# ---- a conversation

def asked(form, topic):
    """The answer to "what did I ask?". A topic such as "nothing, you thanked me" is a sentence of its own."""
    if not topic:
        return ASKED_NOTHING
    return f"You asked {topic}." if topic.startswith("nothing,") else form.format(topic=topic)


def pattern(forms):
    """Matches every text that one of the forms can make, compared by key."""
    return re.compile("|".join(re.escape(key(re.sub(r"\{\w+\}", "zzz", form))).replace("zzz", ".+") for form in forms))


HELD_TEXTS = {key(q) for f in FACTS + TALK for q in f.test} | {key(form) for form in HELD_LISTS if "{" not in form}
with open(os.path.join(HERE, "fresh.jsonl"), encoding="utf-8") as file:        # the second test set, written by hand
    HELD_TEXTS |= {key(json.loads(line)["messages"][-1]["content"]) for line in file}
HELD_FORMS = {}         # by first word, as far as a form has one
for form in HELD_LISTS:
    if "{" in form:
        HELD_FORMS.setdefault(key(form).split(" ")[0] if form[0] != "{" else "", []).append(form)
HELD_FORMS = {word: pattern(forms) for word, forms in HELD_FORMS.items()}


def is_held(text):
    """True for a text, or a text of a form, that is kept for the tests."""
    text = key(text)
    return (text in HELD_TEXTS or any(word in HELD_FORMS and HELD_FORMS[word].fullmatch(text) for word in (text.split(" ")[0], "")))


def train_text(make):
    """What make() returns, made again as long as it has a form that is kept for the test. make: () -> text or (text, ...)."""
    while True:
        made = make()
        if not is_held(made if isinstance(made, str) else made[0]):
            return made


class Conversation:
    """Turns and what they leave to refer to."""

    def __init__(self, rng):
        self.rng, self.turns = rng, []
        self.system = rng.choice(SYSTEM) if rng.random() < 0.1 else None
        self.fact = self.total = self.hero = self.name = self.topic = self.first = None
        self.told = {}

    def say(self, user, answer, topic=None, fact=None, total=None, hero=None):
        self.turns.append((user, answer))
        self.fact, self.total, self.hero = fact, total, hero
        if topic:
            self.topic, self.first = topic, self.first or topic

    def short(self, forms):
        """One of a few forms that refer to what was said before."""
        rng = self.rng
        return train_text(lambda: dress(rng, reword(rng, rng.choice(forms), rng.choice((0, 0, 1))), extras=rng.random() < 0.2))

    def fact_turn(self, fact, held=False, text=None):
        if not held:
            text = train_text(lambda: dress(self.rng, in_context(self.rng, ask_fact(self.rng, fact))))
        self.say(text or ask_fact(self.rng, fact, held), fact.say, fact.topic, fact=(fact, 0))

    def talk_turn(self):
        fact = self.rng.choice(TALK)
        rng = self.rng
        text = train_text(lambda: bag(rng, fact) if rng.random() < 0.03 else
                          dress(rng, reword(rng, rng.choice(fact.ask), rng.choice((0, 0.5, 1))), extras=rng.random() < 0.3))
        self.say(text, fact.say, fact.topic, fact=(fact, 0))

    def more_turn(self, held=False):
        text = self.rng.choice(HELD_MORE) if held else self.short(MORE)
        if not self.fact:
            return self.say(text, MORE_OF_WHAT)
        fact, given = self.fact
        answer = fact.more if fact.more and not given else NO_MORE
        self.say(text, answer, fact=(fact, 1))

    def unknown_turn(self, held=False):
        text = (ask_unknown(self.rng, True) if held else
                train_text(lambda: dress(self.rng, in_context(self.rng, ask_unknown(self.rng)))))
        self.say(text, DONT_KNOW, "something that I do not know")

    def sum_turn(self, held=False, unseen=False):
        if not held and self.rng.random() < 0.08:
            text, answer = ask_other_sum(self.rng)
            return self.say(dress(self.rng, text), answer, "a sum")
        text, answer, total = ask_sum(self.rng, True, unseen) if held else train_text(lambda: ask_sum(self.rng))
        self.say(text if held else dress(self.rng, text, typos=False), answer, "a sum", total=total)

    def and_turn(self, held=False):
        sign = self.rng.choice(("plus", "plus", "minus"))
        b = self.rng.randrange(100) if sign == "plus" else self.rng.randrange(min(self.total, 99) + 1)
        forms = {"plus": (AND_PLUS, HELD_AND_PLUS), "minus": (AND_MINUS, HELD_AND_MINUS)}[sign][held]
        text = (self.rng.choice(forms).format(b=number(self.rng, b, False)) if held else
                train_text(lambda: self.rng.choice(forms).format(b=number(self.rng, b))))
        answer, total = do_sum(self.total, sign, b)
        self.say(text if held else dress(self.rng, text, typos=False, extras=False), answer, "a sum", total=total if total < 200 else None)

    def count_turn(self, held=False):
        text, answer, topic = ask_count(self.rng, True) if held else train_text(lambda: ask_count(self.rng))
        self.say(text if held else dress(self.rng, text, typos=False), answer, topic)

    def story_turn(self, held=False):
        text, hero = ask_story(self.rng, True) if held else train_text(lambda: ask_story(self.rng))
        self.story_of(hero, text if held else dress(self.rng, text, typos=False, keep_case=True))

    def story_of(self, hero, text):
        told = self.told[hero] = self.told.get(hero, -1) + 1
        self.say(text, story(hero, told), "a story about " + article(hero), hero=hero)

    def another_turn(self, held=False):
        self.story_of(self.hero, self.rng.choice(HELD_ANOTHER) if held else self.short(ANOTHER))

    def name_turn(self, held=False):
        name = self.rng.choice(NAMES) if self.rng.random() < 0.6 else made_up(self.rng).capitalize()
        if not held and self.rng.random() < 0.15:
            name = name.lower()
        text = (self.rng.choice(HELD_TELL_NAME).format(n=name) if held else
                train_text(lambda: self.rng.choice(TELL_NAME).format(n=name)))
        self.name = name
        text = text if held or not text[0].islower() or text.startswith(name) or self.rng.random() < 0.5 else text[0].upper() + text[1:]
        self.say(text, NAME_GREETING.format(name=name))

    def my_name_turn(self, held=False):
        text = self.rng.choice(HELD_ASK_NAME) if held else self.short(ASK_NAME)
        self.say(text, NAME_ANSWER.format(name=self.name) if self.name else NO_NAME)

    def asked_turn(self, held=False):
        text = self.rng.choice(HELD_ASK_BACK) if held else self.short(ASK_BACK)
        self.say(text, asked(ASKED, self.topic))

    def first_turn(self, held=False):
        text = self.rng.choice(HELD_ASK_FIRST) if held else self.short(ASK_FIRST)
        self.say(text, asked(ASKED_FIRST, self.first))

    def repeat_turn(self, held=False):
        text = self.rng.choice(HELD_REPEAT) if held else self.short(REPEAT)
        self.say(text, self.turns[-1][1] if self.turns else NOTHING_TO_REPEAT, fact=self.fact, total=self.total, hero=self.hero)

    def next_turn(self):
        """A turn of some kind that fits, drawn at random."""
        rng = self.rng
        draw = rng.random()
        if self.fact and draw < 0.20 or self.total is not None and draw < 0.30 or self.hero and draw < 0.30:
            return self.more_turn() if self.fact else self.and_turn() if self.total is not None else self.another_turn()
        turn = rng.choices((self.unknown_turn, self.sum_turn, self.count_turn, self.story_turn, self.talk_turn, self.asked_turn, self.first_turn,
                            self.repeat_turn, self.name_turn, self.my_name_turn, self.more_turn, None),
                           (13, 9, 5, 4, 11, 2.5, 1.2, 1.2, 2, 3 if self.name else 0.6, 0.3, 48))[0]
        return turn() if turn else self.fact_turn(rng.choice(FACTS))


def conversation(rng, turns):
    c = Conversation(rng)
    for _ in range(turns):
        c.next_turn()
    return c


# ---- the held-out test

def messages(turns, system=None):
    """The messages of a conversation; the last answer is left out."""
    out = [{"role": "system", "content": system}] if system else []
    for user, answer in turns:
        out += [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    return out[:-1]


def held_out():
    """The test: one object a question, with its right answer."""
    rng = random.Random(20240229)
    test = []

    def add(kind, c, **answer):
        text = c.turns[-1][0]
        if rng.random() < 0.4 and kind in ("fact", "talk", "unknown"):
            text = text[0].upper() + text[1:]
        c.turns[-1] = (text, c.turns[-1][1])
        test.append({"id": f"{kind}-{len(test):03d}", "kind": kind, "messages": messages(c.turns, c.system),
                     **(answer or {"answer": c.turns[-1][1]})})

    def fresh():
        return Conversation(rng)

    for fact in FACTS:                                  # hand-written questions, one a fact
        c = fresh()
        c.fact_turn(fact, held=True, text=fact.test[0])
        add("fact", c)
    for fact in rng.sample([f for f in FACTS if f.thing or f.do or f.vs or f.why], 60):     # forms kept for the test
        c = fresh()
        c.fact_turn(fact, held=True)
        add("fact", c)
    for i in range(30):
        c = fresh()
        c.sum_turn(held=True, unseen=i % 2 == 1)
        add("sum", c)
    for _ in range(15):
        c = fresh()
        c.count_turn(held=True)
        add("count", c)
    for i in range(20):                                 # follow-ups, some of them after several other turns
        c = conversation(rng, rng.choice((0, 0, 2, 5)))
        if i < 7:
            c.fact_turn(rng.choice([f for f in FACTS if f.more]))
            c.more_turn(held=True)
        elif i < 10:
            c.fact_turn(rng.choice(FACTS))
            c.asked_turn(held=True)
        elif i < 13:
            c.name_turn(held=i == 10)
            c.fact_turn(rng.choice(FACTS))
            c.my_name_turn(held=True)
        elif i < 16:
            c.total = None
            while c.total is None:
                c.sum_turn()
            c.and_turn(held=True)
        elif i < 17:
            c.fact_turn(rng.choice(FACTS))
            c.repeat_turn(held=True)
        elif i < 18:
            c.fact_turn(rng.choice(FACTS))
            c.first_turn(held=True)
        else:
            c.story_turn()
            c.another_turn(held=True)
            add("follow-up", c, contains=[bare(c.hero), "The end."])
            continue
        add("follow-up", c)
    for _ in range(35):
        c = fresh()
        c.unknown_turn(held=True)
        add("unknown", c)
    for fact in TALK:
        c = fresh()
        c.fact_turn(fact, held=True, text=fact.test[0])
        add("talk", c)
    for _ in range(10):
        c = fresh()
        c.story_turn(held=True)
        add("story", c, contains=[bare(c.hero), "The end."])
    return test


# ---- training rows

TEST = held_out()
TEST_KEYS = {key(item["messages"][-1]["content"]) for item in TEST}


def checked(c):
    """The conversation, once it is sure that it asks nothing of the test."""
    for user, _ in c.turns:
        assert key(user) not in TEST_KEYS, f"a held-out text in training: {user!r}"
    return c


class Encoder:
    """Token ids by the rule of the chat template: each message's content on its own, between its role and <|end|>."""

    def __init__(self):
        import sentencepiece
        self.sp, self.cache = sentencepiece.SentencePieceProcessor(os.path.join(HERE, "..", "tokenizer.model")), {}

    def content(self, text):
        ids = self.cache.get(text)
        if ids is None:
            ids = self.sp.encode(text)
            if len(self.cache) < 200000:
                self.cache[text] = ids
        return ids

    def turn(self, user, answer):
        """Ids, and 1 where they are the model's own: the answer and its <|end|>."""
        u, a = self.content(user), self.content(answer)
        return [4, *u, 6, 5, *a, 6], [0] * (len(u) + 3) + [1] * (len(a) + 1)

    def start(self, system):
        ids = [1, 3, *self.content(system), 6] if system else [1]
        return ids, [0] * len(ids)


def make_rows(job):
    """Rows [count, 2, length]: token ids and loss mask. Half of the rows are one long conversation, half are many short ones."""
    import numpy
    seed, count, length = job
    rng, encoder = random.Random(seed), Encoder()
    rows = numpy.zeros((count, 2, length), numpy.int16)
    for row in rows:
        ids, mask = [], []
        long = rng.random() < 0.4
        while len(ids) < length:
            c = Conversation(rng)
            turns = 1000 if long else rng.choice((1, 1, 1, 1, 2, 3, 4, 6, 8))
            for part in [encoder.start(c.system)]:
                ids += part[0]
                mask += part[1]
            while len(c.turns) < turns and len(ids) < length:
                before = len(c.turns)
                c.next_turn()
                assert not {key(u) for u, _ in c.turns[before:]} & TEST_KEYS, f"a held-out text in training: {c.turns[-1][0]!r}"
                for user, answer in c.turns[before:]:
                    part = encoder.turn(user, answer)
                    ids += part[0]
                    mask += part[1]
        row[0], row[1] = ids[:length], mask[:length]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--text")
    parser.add_argument("--rows")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--length", type=int, default=2049)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.test:
        with open(os.path.join(HERE, "heldout.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in TEST)
    if args.sample:
        for i in range(args.sample):
            c = checked(conversation(random.Random(args.seed + i), 8))
            print(*(f"> {u}\n{a}" for u, a in c.turns), "", sep="\n")
    if args.text:
        rng = random.Random(args.seed)
        with open(args.text, "w", encoding="utf-8") as file:
            for _ in range(args.count):
                for user, answer in checked(conversation(rng, 6)).turns:
                    file.write(f"{user}\n{answer}\n")
    if args.rows:
        import numpy
        piece = 250
        jobs = [(args.seed * 1000003 + i, min(piece, args.count - i), args.length) for i in range(0, args.count, piece)]
        with multiprocessing.Pool() as pool:
            numpy.save(args.rows, numpy.concatenate(pool.map(make_rows, jobs, chunksize=1)))


if __name__ == "__main__":
    main()
