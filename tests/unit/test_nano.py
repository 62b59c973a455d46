"""The embedded base model: loads like any other, its tokenizer loses nothing, its score leaves room to learn."""

from __future__ import annotations

from statistics import fmean

import pytest

from llmzero.domain.errors import UsageError
from llmzero.domain.examples import SPLITS, Transcript
from llmzero.tasks.chemcot import chemcot, prompts
from llmzero.trainers.nano import nano_path

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TASK = chemcot()
MAX_NEW_TOKENS = 40


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(nano_path("chemcot"), local_files_only=True)


@pytest.fixture(scope="module")
def model():
    return transformers.AutoModelForCausalLM.from_pretrained(nano_path("chemcot"), local_files_only=True)


def chat(tokenizer, example):
    return tokenizer.apply_chat_template(list(TASK.prompt(example)), add_generation_prompt=True, tokenize=False)


def test_the_folder_is_small_and_has_a_card():
    files = [path for path in nano_path("chemcot").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2 * 1024**2
    assert "README.md" in {path.name for path in files}


def test_an_unknown_task_names_the_known_ones():
    with pytest.raises(UsageError, match="there is one for chemcot"):
        nano_path("alchemy")


def test_the_shape_is_the_documented_one(model):
    assert model.config.model_type == "qwen3"
    assert 250_000 < model.num_parameters() < 400_000


def test_text_survives_the_tokenizer(tokenizer):
    for split in SPLITS:
        for example in TASK.examples(split)[:400]:
            right = prompts.answer(example.fields["gold"], str(example.fields["key"]))
            for text in (TASK.prompt(example)[0]["content"], right, chat(tokenizer, example)):
                ids = tokenizer(text)["input_ids"]
                assert tokenizer.decode(ids) == text and tokenizer.unk_token_id not in ids


def test_json_frames_are_single_tokens(tokenizer):
    for frame in ('{"output": "', '{"count": "', '{"Output Scaffold": "', '"}', "Cl", "[nH]", "<|assistant|>"):
        assert len(tokenizer(frame)["input_ids"]) == 1, frame


def test_any_ascii_text_survives(tokenizer):
    text = "".join(map(chr, range(32, 127))) + "\n\tA hub prompt: count the 2 rings in CC[C@H](N)C(=O)O."
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_right_answers_fit_the_usual_cap(tokenizer):
    lengths = [
        len(tokenizer(prompts.answer(e.fields["gold"], str(e.fields["key"])))["input_ids"]) + 1
        for e in TASK.examples("test")
    ]
    assert 12 < fmean(lengths) < 24 and max(lengths) <= MAX_NEW_TOKENS


def sampled_scores(model, tokenizer, examples, seed):
    """Rewards of one sampled answer each, temperature 1, top-p 1."""
    torch.manual_seed(seed)
    batch = tokenizer([chat(tokenizer, e) for e in examples], return_tensors="pt", padding=True)
    with torch.no_grad():
        out = model.generate(
            **batch, max_new_tokens=MAX_NEW_TOKENS, do_sample=True, temperature=1.0, top_p=1.0, top_k=0
        )
    texts = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return [TASK.reward(e, Transcript.of(text)).value for e, text in zip(examples, texts, strict=True)]


def test_the_base_leaves_room_to_learn(model, tokenizer):
    scores = [fmean(sampled_scores(model, tokenizer, TASK.examples("validation"), seed)) for seed in (0, 1, 2)]
    assert 0.2 < fmean(scores) < 0.45
