"""Words and byte-pair encoding: the plain trainers against Sennrich's listing and against
`tokenizers`, ties included."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlbook.llm.tokenizers.bpe import (
    apply_merges,
    byte_characters,
    count_pairs,
    learn_merges,
    merge_pair,
    to_byte_characters,
    train_bpe,
)
from rlbook.llm.tokenizers.tokenizer import fast_tokenizer
from rlbook.llm.tokenizers.trained_codec import (
    KINDS,
    SPECIAL,
    WORDS,
    TokenizerChoice,
    codec_of_backend,
    train_tokenizer,
    trained_codec,
)
from rlbook.llm.tokenizers.word import PIECES, count_words, one_hot, split_words, train_words

SENNRICH = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
TEXTS = [
    "the king sees the queen, and the queen sees the king.",
    "a king's dog isn't old; it has 12 bones and 345 friends!",
    "  two  blanks\nand a line, naïve café: 12+34=46",
    "aaaa aaa aa a aaaaaaaa baaab abab ababab",
]


def library_model(texts: list[str], trainer: Any, model: Any, splitter: Any) -> dict[str, Any]:
    """The model that `tokenizers` learns of these texts."""
    made = Tokenizer(model)
    made.pre_tokenizer = splitter
    made.train_from_iterator(texts, trainer)
    return json.loads(made.to_str())["model"]


def test_the_classic_listing_learns_the_classic_merges() -> None:
    # es, st and t</w> occur 6 + 3 = 9 times each, and es is found first, in newest
    assert learn_merges(SENNRICH, 4) == [("e", "s"), ("es", "t"), ("est", "</w>"), ("l", "o")]
    first = count_pairs({(*word, "</w>"): count for word, count in SENNRICH.items()})
    assert first["e", "s"] == first["s", "t"] == 6 + 3 == max(first.values())
    assert first["l", "o"] == 5 + 2 and first["w", "e"] == 2 + 6


def test_a_merge_takes_each_pair_once_from_the_left() -> None:
    assert merge_pair("aaa", ("a", "a")) == ("aa", "a")
    assert merge_pair("abcab", ("a", "b")) == ("ab", "c", "ab")
    assert merge_pair((), ("a", "b")) == ()


def test_nothing_is_left_to_merge_after_whole_words() -> None:
    assert learn_merges({"ab": 1}, 9) == [("a", "b"), ("ab", "</w>")]
    assert train_bpe({"ab": 1}, 9).merges == [("a", "b")]
    assert train_bpe({}, 9).vocabulary == {} and learn_merges({}, 3) == []


@pytest.mark.parametrize("seed", range(60))
def test_the_trainer_equals_the_library_s_with_its_ties(seed: int) -> None:
    """Two or three letters make nearly every count a tie, and words such as aaaa overlap."""
    rng = random.Random(seed)
    words = [
        "".join(rng.choice("abc"[: 2 + seed % 2]) for _ in range(rng.randint(1, 9)))
        for _ in range(rng.randint(1, 30))
    ]
    size, counts = rng.randint(3, 60), Counter(words)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False)
    theirs = library_model(
        [" ".join(words)],
        trainer,
        models.BPE(unk_token="<unk>"),
        pre_tokenizers.WhitespaceSplit(),
    )
    ours = train_bpe(counts, size, special_tokens=["<unk>"])
    assert ours.vocabulary == theirs["vocab"]
    assert ours.merges == [tuple(pair) for pair in theirs["merges"]]
    assert len({counts[word] for word in counts}) < len(counts) or len(counts) < 6  # ties


def test_the_merges_with_an_end_of_word_equal_the_library_s() -> None:
    """Its ids of symbols such as t</w> change from process to process, because it walks through a
    hash table, so the merges are compared; here no two that compete are equally frequent."""
    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    theirs = library_model(
        [" ".join(word for word, count in counts.items() for _ in range(count))],
        trainers.BpeTrainer(vocab_size=16, end_of_word_suffix="</w>", show_progress=False),
        models.BPE(end_of_word_suffix="</w>"),
        pre_tokenizers.WhitespaceSplit(),
    )
    ours = train_bpe(counts, 16, end_of_word="</w>")
    assert ours.merges == [tuple(pair) for pair in theirs["merges"]]
    assert ours.merges[:3] == [("e", "s"), ("es", "t</w>"), ("l", "o")]
    assert set(ours.vocabulary) == set(theirs["vocab"])


def test_applying_merges_gives_the_library_s_tokens() -> None:
    counts = count_words(TEXTS)
    learned = train_bpe(counts, 80)
    backend = Tokenizer(models.BPE(vocab=learned.vocabulary, merges=learned.merges))
    for word in counts:
        assert list(apply_merges(word, learned.merges)) == backend.encode(word).tokens
    symbols = [*"lowest", "</w>"]  # a word that was not there
    assert apply_merges(symbols, learn_merges(SENNRICH, 4)) == ("lo", "w", "est</w>")
    assert apply_merges(symbols, learn_merges(SENNRICH, 10)) == ("low", "est</w>")
    assert apply_merges("", learned.merges) == ()


def test_byte_characters_are_gpt_2_s() -> None:
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert sorted(characters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert to_byte_characters("a é\n") == "aĠÃ©Ċ"
    shown = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert shown.pre_tokenize_str("naïve ½\t")[0][0] == to_byte_characters("naïve ½\t")


def test_the_whole_file_of_a_byte_level_tokenizer_equals_the_library_s() -> None:
    ours = train_tokenizer("bytelevel", TEXTS, 320)
    theirs = Tokenizer.from_str(ours.to_str())
    theirs.model = models.BPE(unk_token="<unk>")
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(TEXTS, trainer)
    assert json.loads(ours.to_str()) == json.loads(theirs.to_str())
    assert ours.get_vocab_size() == 320


def test_the_whole_file_of_a_bpe_tokenizer_equals_the_library_s() -> None:
    ours = train_tokenizer("bpe", TEXTS, 90)
    theirs = Tokenizer.from_str(ours.to_str())
    theirs.model = models.BPE(unk_token="<unk>")
    theirs.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=90, special_tokens=list(SPECIAL), show_progress=False),
    )
    assert json.loads(ours.to_str()) == json.loads(theirs.to_str())


def test_nothing_is_learned_within_special_tokens() -> None:
    """Encoding takes them out first; the library learns < p, a d and so on, which it never uses."""
    for kind in ("bpe", "bytelevel"):
        plain = train_tokenizer(kind, ["aa bb"] * 3, 300)
        written = ["<think>aa bb<eos>"] * 3
        assert train_tokenizer(kind, written, 300, words=("<think>",)).encode("aa bb").tokens == (
            plain.encode("aa bb").tokens
        )
        own = json.loads(train_tokenizer(kind, ["<pad><eos>"] * 3, 300).to_str())["model"]
        assert own["merges"] == []


@pytest.mark.parametrize("size", [None, 5, 12])
def test_the_word_vocabulary_equals_the_library_s(size: int | None) -> None:
    theirs = library_model(
        TEXTS,
        trainers.WordLevelTrainer(
            vocab_size=size or 10_000, special_tokens=list(SPECIAL), show_progress=False
        ),
        models.WordLevel(unk_token="<unk>"),
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
    )
    counts = count_words(TEXTS)
    assert train_words(counts, size, special_tokens=SPECIAL) == theirs["vocab"]
    backend = train_tokenizer("word", TEXTS, size)
    assert json.loads(backend.to_str())["model"]["vocab"] == theirs["vocab"]


def test_words_blanks_and_marks_together_are_the_text() -> None:
    assert split_words("it isn't, 12!") == ["it", " ", "isn", "'", "t", ",", " ", "12", "!"]
    assert all("".join(split_words(text)) == text for text in TEXTS)


def test_one_hot_rows_are_equally_far_apart() -> None:
    assert one_hot([2, 0], 3) == [[0, 0, 1], [1, 0, 0]]
    assert one_hot([], 3) == []


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_gives_back_the_text(kind: str) -> None:
    codec = trained_codec(TokenizerChoice(kind), TEXTS, words=("<think>",))
    for text in (*TEXTS, "<think>the king<think>"):
        ids = codec.encode_answer(text)
        assert codec.decode(ids[:-1]) == text and ids[-1] == codec.eos
        (prompt,) = codec.encode_prompts([text])
        assert prompt == [codec.bos, *ids[:-1]]
    think = codec.encode_answer("<think>")
    assert len(think) == 2 and codec.backend.id_to_token(think[0]) == "<think>"


def test_only_bytes_know_every_text() -> None:
    codecs = {kind: trained_codec(TokenizerChoice(kind), TEXTS) for kind in KINDS}
    assert codecs["bytelevel"].decode(codecs["bytelevel"].encode_answer("日本")[:-1]) == "日本"
    for kind in ("character", "bpe"):
        with pytest.raises(ValueError, match="the vocabulary has no token for '日'"):
            codecs[kind].encode_answer("日本")
    words = codecs["word"]
    assert words.encode_prompts(["日本 king"])[0][1] == words.unknown == SPECIAL.index("<unk>")
    with pytest.raises(ValueError, match="no token for the word '日本' in the answer"):
        words.encode_answer("日本 king")


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_tokenizer_s_file_loads_in_transformers(kind: str, tmp_path: Any) -> None:
    from transformers import AutoTokenizer

    codec = trained_codec(TokenizerChoice(kind), TEXTS)
    fast_tokenizer(codec.backend).save_pretrained(tmp_path)
    codec.backend.save(str(tmp_path / "alone.json"))
    alone = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "alone.json"))
    loaded = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in TEXTS:
        (ids,) = codec.encode_prompts([text])
        assert loaded(text).input_ids == alone(text).input_ids == ids
        assert loaded.decode(ids, skip_special_tokens=True) == text
    named = (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id, loaded.unk_token_id)
    assert named == (0, 1, 2, 3) and len(loaded) == codec.vocabulary_size
    again = codec_of_backend(Tokenizer.from_str(codec.backend.to_str()))
    assert (again.characters, again.words, again.unknown) == (
        codec.characters,
        codec.words,
        codec.unknown,
    )


def test_words_are_split_as_gpt_2_splits_them() -> None:
    ours = pre_tokenizers.Split(Regex(WORDS), "isolated")
    theirs = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS:
        pieces = [piece for piece, _ in ours.pre_tokenize_str(text)]
        shown = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert list(map(to_byte_characters, pieces)) == shown
