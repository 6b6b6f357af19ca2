"""Seeds that have shown something once."""

from __future__ import annotations

INTERESTING: dict[int, str] = {
    0: "a turn is taken over and followed from elsewhere, and heard words are brought again",
    1: "a turn is cancelled while its node is dead, and another while its commit is on its way",
    2: "a turn is resumed with calls under way, and a failed attempt is retried on another history",
    3: "a failed attempt is retried that had done something",
    4: "nodes leave one after the other, and are asked for turns after they have left",
    6: "words with a key are sent again after the turn that never heard them",
    7: "a node finds turns of its own among the orphans; turns wait in the store for a session that is deleted",
    8: "a cancel comes while the end is decided",
    10: "a turn is watched whose session is deleted; a key means another session than the one that is remembered",
    11: "a player loses its turn",
    15: "many wait in one lane",
    16: "an annotation is made through another node",
    20: "a node dies between the start of a tool and its effect",
    23: "words with a key are joined before they are heard, and their turn ends without them",
    33: "a turn is stopped over words that it hears, while others are on their way",
    105: "a commit that was given up for lost arrives after the turn has gone on",
    109: "a node comes back to a commit that another one has made for it",
    253: "a turn that was told something says nothing more, and its page tells its words again",
    316: "a client wishes for another end than its turn has had",
    9501: "a page's turn has ended by the time that the server looks for what its next message follows",
    26167: "a commit that was on its way is made by another node, which has taken the turn over",
    59633: "an SDK's retry of a message finds the turn open that has heard it",
    59668: "a client whose message a broken turn has heard retries as often as the first one, and finishes the turn",
    82191: "two messages of a page are on their way to one turn, and the second tells the first",
    801297: "the past that a request tells, which has waited, was brought by another one meanwhile",
    7001302: "a session is deleted after its turn was played, and before the store has heard of the turn's end",
    10002800: "turns wait in the store, and a later request has told the open turn what they were to say",
    10003220: "a page's second message is there before its first one, which is said to the turn of the second",
    40000127: "a turn that had waited fails at once, after a later request has found the session busy with it",
    40004458: "a client retries a message that a broken turn has heard, on a node that knows nothing newer",
    40004692: "a session is deleted while a request is on its way to waiting for it in the store",
    40005202: "turns that have waited run out of time one after the other, and a later request gives way to each",
    40014441: "a node takes a turn over from itself, to end it, while it is still about to go on with it",
    60003887: "a session is deleted, and another of its name is busy by the time that a request is done looking",
    60006718: "a client continues a turn that has heard it, and stops that by going away",
    70001922: "a request asks whether its session was deleted, and a later one takes its place in the lane",
    771100778: "a client whose message a broken turn has heard finishes the turn, and the first client asks again",
    910000211: "a page tells an answer before a message that the same turn had heard, on top of a version that is old",
    26522854688: "a client whose message a broken turn has heard counts more retries than the first client",
}
"""What they meet. Each of them notices a mutant (`tests/mutants`) that is about just that, or has found a mistake."""

UNLOCKED: dict[int, str] = {
    197: "another node begins a turn between the two reads of a retry under a key",
    91000596: "a session is deleted while a client reads it for its next message",
}
"""What happens between the steps of an operation, on the home where something can."""
