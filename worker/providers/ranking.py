"""Chooses the sentences of a text that say most of what it says; standard library only.

    1. every distinct sentence gets a score linear in its length: cosine with the whole text (TF-IDF)
    2. the best few hundred are compared with each other; a random walk over their similarities finds
       the central ones (LexRank, Erkan and Radev 2004)
    3. maximal marginal relevance (Carbonell and Goldstein 1998) takes them one by one, so that the
       second choice does not repeat the first

Step 2 is quadratic, so step 1 decides who takes part, and the whole stays within seconds for any text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from worker.providers.sentences import Sentence
from worker.providers.words import STOP_WORDS

MAX_CANDIDATES = 300  # 300 x 300 similarities take 0.2 s; 1000 took 2 s and chose nearly the same
WALK_STEPS = 30  # the order of the first sentences settles after about 15
DAMPING = 0.85  # of the random walk, as in PageRank
RELEVANCE_SHARE = 0.7  # of relevance against novelty in step 3
SAME_COSINE = 0.8  # from here on two sentences say the same in almost the same words: the second comes last
STEM_CHARS = 6  # a prefix stands for a stem: good enough for German and Russian endings, needs no tables
FULL_LENGTH_TERMS = 6  # a sentence with fewer words of content says little by itself
USUAL_MAX_CHARS = 250  # longer ones share words with everything, and are no relief to a reader

Vector = dict[str, float]

# Written without spaces, so pairs of characters stand for words.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0002fa1f"
_TOKEN = re.compile(f"[{_UNSPACED}]+|[^\\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def choose(sentences: Sequence[Sentence], count: int) -> list[Sentence]:
    """At most `count` of the sentences, in their order; at least one if there is one."""
    firsts: dict[str, Sentence] = {}
    for sentence in sentences:
        firsts.setdefault(sentence.text, sentence)
    distinct = list(firsts.values())
    if len(distinct) <= count:
        return distinct
    terms = [Counter(_terms(sentence.text)) for sentence in distinct]
    weights = _idf(terms)
    vectors = [_vector(counted, weights) for counted in terms]
    priors = [_prior(sentence, len(terms[i]), i, len(distinct)) for i, sentence in enumerate(distinct)]
    candidates = _candidates(vectors, priors, max(count, MAX_CANDIDATES))
    similar = _similarities([vectors[i] for i in candidates])
    central = _walk(similar)
    relevance = [central[k] * priors[i] for k, i in enumerate(candidates)]
    chosen = _diverse(relevance, similar, count)
    return [distinct[i] for i in sorted(candidates[k] for k in chosen)]


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if _IS_UNSPACED.match(token):
            terms += [token[i : i + 2] for i in range(max(1, len(token) - 1))]
        elif token not in STOP_WORDS and (len(token) > 1 or token.isdigit()):
            terms.append(token[:STEM_CHARS])
    return terms


def _idf(terms: Sequence[Counter[str]]) -> dict[str, float]:
    spread: Counter[str] = Counter()
    for counted in terms:
        spread.update(counted.keys())
    return {term: math.log(1 + len(terms) / seen) for term, seen in spread.items()}


def _vector(counted: Counter[str], weights: dict[str, float]) -> Vector:
    raw = {term: (1 + math.log(times)) * weights[term] for term, times in counted.items()}
    norm = math.sqrt(sum(value * value for value in raw.values()))
    return {term: value / norm for term, value in raw.items()} if norm else {}


def _prior(sentence: Sentence, terms: int, index: int, total: int) -> float:
    """What speaks for a sentence before its words do: writers lead with what matters, and say it in prose."""
    lead = 1 + 0.5 * math.exp(-10 * index / total) + (0.1 if sentence.opens else 0.0)
    short = min(1.0, (1 + terms) / (1 + FULL_LENGTH_TERMS))
    length = short * min(1.0, math.sqrt(USUAL_MAX_CHARS / len(sentence.text)))
    return lead * length * (1.0 if sentence.prose else 0.2)


def _candidates(vectors: Sequence[Vector], priors: Sequence[float], most: int) -> list[int]:
    """The indexes of the best sentences by cosine with the whole text, in document order."""
    if len(vectors) <= most:
        return list(range(len(vectors)))
    centroid: Counter[str] = Counter()
    for vector in vectors:
        for term, value in vector.items():
            centroid[term] += value  # type: ignore[assignment]
    scores = [
        priors[i] * sum(value * centroid[term] for term, value in vector.items()) for i, vector in enumerate(vectors)
    ]
    best = sorted(range(len(vectors)), key=lambda i: (-scores[i], i))[:most]
    return sorted(best)


def _similarities(vectors: Sequence[Vector]) -> list[dict[int, float]]:
    """Cosines between sentences that share a term, by way of an index from term to sentences."""
    having: dict[str, list[tuple[int, float]]] = {}
    similar: list[dict[int, float]] = [{} for _ in vectors]
    for i, vector in enumerate(vectors):
        row: dict[int, float] = {}
        for term, value in vector.items():
            for j, other in having.setdefault(term, []):
                row[j] = row.get(j, 0.0) + value * other
            having[term].append((i, value))
        for j, cosine in row.items():
            similar[i][j] = similar[j][i] = cosine
    return similar


def _walk(similar: Sequence[dict[int, float]]) -> list[float]:
    """Centrality of each sentence, scaled so that the most central has 1."""
    size = len(similar)
    out = [sum(row.values()) for row in similar]
    rank = [1.0 / size] * size
    for _ in range(WALK_STEPS):
        share = [rank[i] / out[i] if out[i] else 0.0 for i in range(size)]
        rank = [
            (1 - DAMPING) / size + DAMPING * sum(cosine * share[j] for j, cosine in row.items()) for row in similar
        ]
    top = max(rank)
    return [value / top for value in rank]


def _diverse(relevance: Sequence[float], similar: Sequence[dict[int, float]], count: int) -> list[int]:
    """Indexes chosen by maximal marginal relevance; ties go to the earlier sentence."""
    left = set(range(len(relevance)))
    repeats = [0.0] * len(relevance)

    def merit(k: int) -> tuple[bool, float, int]:
        marginal = RELEVANCE_SHARE * relevance[k] - (1 - RELEVANCE_SHARE) * repeats[k]
        return repeats[k] < SAME_COSINE, marginal, -k

    chosen: list[int] = []
    while left and len(chosen) < count:
        best = max(left, key=merit)
        left.remove(best)
        chosen.append(best)
        for k, cosine in similar[best].items():
            repeats[k] = max(repeats[k], cosine)
    return chosen
