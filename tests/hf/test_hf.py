"""Models of ndstack in transformers: the same numbers, generation, training, and the way back."""

import json
import math

import pytest
import torch
import transformers

from ndstack import zoo
from ndstack.errors import NdstackError
from ndstack.hf import (
    NdstackCache,
    NdstackConfig,
    NdstackForCausalLM,
    export_run,
    from_run,
    import_run,
    make_tokenizer,
)
from ndstack.nn import LanguageModel, StackRNN, load, models
from ndstack.nn.language_models.generation import greedy
from ndstack.stacks import Superposition
from ndstack.text.scoring import score_words
from ndstack.training import Run
from tests.commands import ndstack

SMALL = {"d_model": 8, "heads": 2, "feedforward": 8, "dropout": 0.0, "num_layers": 3}
MODELS = {
    "rns-2-3": {"hidden": 6},
    "lstm": {"hidden": 6, "embedding": 5},
    "vrns-2-2-3": {"hidden": 6, "embedding": 4},
    "tf+sup-4": SMALL,
    "tf+vrns-2-2-3": SMALL,
}
STRINGS = ["abba", "", "a", "bab"]


def network(name="rns-2-3", seed=3, **more):
    model = models.build(name, ("a", "b"), seed=seed, **MODELS[name], **more)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 4  # so that predictions differ
    return model.eval()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_losses_and_derivatives_with_padding_at_either_side(name, side):
    own = network(name)
    model, tokenizer = NdstackForCausalLM.wrap(own), make_tokenizer(own)
    tokenizer.padding_side = side
    batch = tokenizer([f"{word}<eos>" for word in STRINGS], return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    output = model(**batch, labels=labels)
    expected = own.cross_entropy(STRINGS, per="symbol")
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward(), expected.backward()
    for (key, one), other in zip(model.network.named_parameters(), own.parameters(), strict=True):
        # Both are up to 6e-5 away from float64, which the loss of transformers does not know.
        torch.testing.assert_close(one.grad, other.grad, msg=key, rtol=1e-4, atol=1e-4)
    for row, word in enumerate(STRINGS):
        places = batch.attention_mask[row].nonzero()[:-1, 0]
        torch.testing.assert_close(output.logits[row, places, :-1], own.logits([word])[0])
    assert not output.logits.softmax(-1)[..., model.config.pad_token_id].any()
    without = model(batch.input_ids[:1, 1:])
    torch.testing.assert_close(without.logits, output.logits[:1, 1:])  # BOS may be left out


@pytest.mark.parametrize("name", MODELS)
def test_generate_carries_the_state_and_agrees_with_ndstack(name):
    own = network(name)
    model, tokenizer = NdstackForCausalLM.wrap(own), make_tokenizer(own)
    batch = tokenizer(STRINGS, return_tensors="pt", padding=True)
    start, most = batch.input_ids.shape[1], 6
    made = model.generate(**batch, max_new_tokens=most, do_sample=False)
    assert torch.equal(made, model.generate(**batch, max_new_tokens=most, do_sample=False, use_cache=False))
    for row, word in zip(made.tolist(), STRINGS, strict=True):
        shown = tokenizer.decode(row, skip_special_tokens=True)
        assert shown == greedy(own, [word], len(word) + most)[0].word[: len(shown)]
    calls = []
    model.register_forward_pre_hook(
        lambda _, given, options: calls.append(options["input_ids"].shape[1]), with_kwargs=True
    )
    model.generate(**batch, max_new_tokens=most, min_new_tokens=most, do_sample=False)
    assert calls == [start] + [1] * (most - 1)
    beams = model.generate(
        **tokenizer("a", return_tensors="pt"), max_new_tokens=3, num_beams=4, num_return_sequences=2,
        length_penalty=0.0, return_dict_in_generate=True, output_scores=True, early_stopping=False,
    )  # fmt: skip
    for row, score in zip(beams.sequences.tolist(), beams.sequences_scores.tolist(), strict=True):
        made = [token for token in row[1:] if token != model.config.pad_token_id]
        log_p = own(torch.tensor([[token for token in made if token < own.boundary]]))[0][0].log_softmax(-1)
        assert sum(log_p[place, made[place]].item() for place in range(1, len(made))) == pytest.approx(score)


def test_caches():
    own = network("tf+vrns-2-2-3")
    model, tokenizer = NdstackForCausalLM.wrap(own), make_tokenizer(own)
    batch = tokenizer(["abb", "ba"], return_tensors="pt", padding=True)
    whole = model(**batch).logits
    output = model(batch.input_ids[:, :2], batch.attention_mask[:, :2])
    cache = output.past_key_values
    assert isinstance(cache, NdstackCache)
    assert cache.get_seq_length() == 2
    later = model(batch.input_ids[:, 2:], batch.attention_mask, past_key_values=cache)
    assert later.past_key_values is cache
    assert cache.get_seq_length() == 4
    torch.testing.assert_close(later.logits, whole[:, 2:])
    cache.batch_repeat_interleave(2)
    assert cache.state.batch_size == 4
    cache.batch_select_indices(torch.tensor([3]))
    assert cache.state.batch_size == 1
    last = model(batch.input_ids, batch.attention_mask, logits_to_keep=1, output_hidden_states=True)
    torch.testing.assert_close(last.logits, whole[:, -1:])
    assert last.hidden_states[0].shape == (2, 4, 8)
    assert len(model(**batch, return_dict=False)) == 2
    padding = model(batch.input_ids[1:, :1], batch.attention_mask[1:, :1]).past_key_values
    with pytest.raises(NdstackError, match="nothing but padding so far"):
        model(batch.input_ids[1:, 1:], batch.attention_mask[1:], past_key_values=padding)
    with pytest.raises(NdstackError, match="cannot be cropped"):
        cache.crop(1)


@pytest.mark.parametrize("name", zoo.names())
def test_networks_of_the_zoo_go_there_and_back(name, tmp_path):
    export_run(name, tmp_path / "hf")
    assert (tmp_path / "hf" / "model.safetensors").exists()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert type(loaded) is NdstackForCausalLM
    own = load(name)
    word = own.decode([0, 1, 0])
    batch = tokenizer(word if isinstance(word, str) else " ".join(word), return_tensors="pt")
    torch.testing.assert_close(loaded(**batch).logits[0, :, :-1], own.logits([word])[0])
    import_run(tmp_path / "hf", tmp_path / "run")
    back = Run.open(tmp_path / "run")
    assert back.config == Run.open(name).config
    assert back.metrics() == Run.open(name).metrics()
    for one, other in zip(back.load().parameters(), own.parameters(), strict=True):
        assert torch.equal(one, other)


def test_trainer_with_checkpoints_and_what_it_learned_comes_back(tmp_path):
    torch.manual_seed(0)
    config = NdstackConfig.of("sup-3", ("a", "b"), hidden=8)
    model = transformers.AutoModelForCausalLM.from_config(config)
    tokenizer = make_tokenizer(model.network)
    strings = ["ab" * size for size in (1, 2, 3, 4)] * 4
    data = [tokenizer(f"{word}<eos>") for word in strings]
    before = model.network.cross_entropy(strings, per="symbol").item()
    arguments = transformers.TrainingArguments(
        tmp_path / "out", num_train_epochs=12, per_device_train_batch_size=8, learning_rate=0.03,
        report_to=[], save_steps=12, logging_steps=12, seed=1, activation_checkpointing=True,
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = transformers.Trainer(model, arguments, train_dataset=data, data_collator=collator)
    trainer.train()
    after = model.network.cross_entropy(strings, per="symbol").item()
    assert after < 0.7 * before
    saved = NdstackForCausalLM.from_pretrained(tmp_path / "out" / "checkpoint-24")
    for one, other in zip(saved.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    import_run(tmp_path / "out" / "checkpoint-24", tmp_path / "own")
    assert load(tmp_path / "own").cross_entropy(strings, per="symbol").item() == pytest.approx(after)


def test_a_run_that_was_tuned_is_a_run_again(tmp_path):
    """From Python, by way of files, and by what `Trainer` saves."""
    name = "zoo:dyck/sup-10"
    model, tokenizer = from_run(name)
    arguments = transformers.TrainingArguments(
        tmp_path / "out", max_steps=2, report_to=[], save_steps=2, disable_tqdm=True, use_cpu=True
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    data = [tokenizer(f"{word}<eos>") for word in ("()", "[()]", "[][]", "(())")]
    transformers.Trainer(model, arguments, train_dataset=data, data_collator=collator).train()
    loaded, _ = NdstackForCausalLM.from_pretrained(
        tmp_path / "out" / "checkpoint-2", output_loading_info=True
    )
    loaded.save_pretrained(tmp_path / "again")
    told = ndstack("hf", "import", tmp_path / "again", "--out", tmp_path / "run")
    assert told.stdout.startswith(
        f"Run: {tmp_path / 'run'}; its parameters have changed, so `ndstack evaluate"
    )
    tuned = Run.open(tmp_path / "run")
    assert tuned.config == Run.open(name).config
    assert torch.equal(tuned.load().output.weight, model.network.output.weight)
    assert not torch.equal(load(name).output.weight, model.network.output.weight)
    assert tuned.tuned
    assert not Run.open(name).tuned
    assert "no results; `ndstack evaluate" in ndstack("show", tuned.folder).stdout
    curves = tmp_path / "both.svg"
    before, after = json.loads(ndstack("compare", name, tuned.folder, "--json", "--out", curves).stdout)
    assert before["difference"] < 0.1
    assert [after[key] for key in ("difference", "cross_entropy", "best_epoch", "epochs")] == [None] * 3 + [0]
    measured = json.loads(ndstack("evaluate", tuned.folder, "--lengths", "4:6", "--json").stdout)
    assert [row["length"] for row in measured["by_length"]] == [4, 6]
    assert (tuned.folder / "test-4-6.json").exists()
    assert not (tuned.folder / "test.json").exists()
    NdstackForCausalLM.wrap(tuned.load()).save_pretrained(tmp_path / "alone")
    told = ndstack("hf", "import", tmp_path / "alone", "--out", tmp_path / "model")
    assert told.stdout.startswith("Model, for ndstack.nn.load, since it did not come from a run: ")


def test_words_and_a_scorer_from_outside():
    """Minicons gives the surprisals of `ndstack text surprisal`."""
    scorer = pytest.importorskip("minicons.scorer")
    words = ("the", "a", "pilot", "sees", "<unk>", "dog")
    own = LanguageModel(StackRNN(5, 6, Superposition(3)), words, "embedding")
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.uniform_(-2, 2, generator=torch.Generator().manual_seed(5))
    tokenizer = make_tokenizer(own)
    outside = scorer.IncrementalLMScorer(NdstackForCausalLM.wrap(own), "cpu", tokenizer=tokenizer)
    sentences = ["The pilot sees a dog", "a zebra sees", "dog"]
    told = outside.token_score([f"{one} <eos>" for one in sentences], surprisal=True, base_two=True)
    for found, expected in zip(told, score_words(own, [one.split() for one in sentences]), strict=True):
        assert [token for token, _ in found[1:]] == [
            word.text.lower() if word.known else "<unk>" for word in expected
        ]
        assert [bits for _, bits in found[1:]] == pytest.approx([word.bits for word in expected], rel=1e-5)
        assert all(math.isfinite(word.bits) for word in expected)


def test_commands(tmp_path):
    done = ndstack("hf", "export", "zoo:dyck/rns-2-3", "--out", "there", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Model: there\n"), done.stderr
    assert json.loads((tmp_path / "there" / "config.json").read_text())["model_type"] == "ndstack"
    done = ndstack("hf", "import", "there", "--out", "back", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Run: back\n"), done.stderr
    assert "validation cross entropy" in ndstack("show", "back", cwd=tmp_path).stdout
    for given, message in (
        (
            ("hf", "import", "back", "--out", "x"),
            "back is a run already; expected what save_pretrained() made",
        ),
        (("hf", "import", "nowhere", "--out", "x"), "nowhere has no config.json"),
        (
            ("hf", "export", "x", "--out", "y"),
            "there is no folder x; expected a run, a name that `ndstack zoo`",
        ),
        (("hf", "export", "there", "--out", "y"), "there is a folder of transformers"),
        (("evaluate", "there"), "`ndstack hf import there --out RUN` makes it a run"),
        (("show", "there"), "`ndstack hf import there --out RUN` makes it a run"),
    ):
        failed = ndstack(*given, cwd=tmp_path)
        assert (failed.returncode, failed.stderr.count("\n")) == (2, 1), failed.stderr
        assert message in failed.stderr
    assert not (tmp_path / "x").exists()


def test_errors_in_one_line():
    model = NdstackForCausalLM.wrap(network())
    ids = torch.tensor([[0, 1]])
    for use, message in (
        (lambda: NdstackForCausalLM(NdstackConfig()), "without a network given"),
        (
            lambda: NdstackForCausalLM(NdstackConfig(network={"alphabet": ["a"]})),
            "does not describe a network",
        ),
        (lambda: model(inputs_embeds=torch.zeros(1, 2, 3)), "expected input_ids"),
        (lambda: model(ids, past_key_values=transformers.DynamicCache()), "expected an NdstackCache"),
        (lambda: model(ids, torch.ones(1, 1)), r"attention_mask of shape \[1, 1\] given"),
        (
            lambda: model(torch.zeros(1, 2)),
            r"input_ids of dtype float32 given, expected .* input_ids.long\(\)",
        ),
        (
            lambda: model.generate(ids, max_new_tokens=1, cache_implementation="static"),
            "cache_implementation='static' given",
        ),
        (lambda: model(torch.tensor([[0, 9]])), r"tokens from 0 to 9 given, expected 0 to \d"),
        (
            lambda: NdstackConfig.of("sup-3", "ab", hiden=3),
            "hiden: there is no such name; did you mean hidden",
        ),
        (lambda: from_run("nowhere"), "there is no folder nowhere; expected a run, .* zoo:"),
        (lambda: from_run("dyck/rns-2-3"), "did you mean zoo:dyck/rns-2-3"),
        (lambda: model.resize_token_embeddings(9), "alphabet of a network is fixed"),
    ):
        with pytest.raises(NdstackError, match=message):
            use()
    with pytest.raises(Exception, match="UNK"):
        make_tokenizer(model.network)("abc")


def test_a_saved_folder_says_how_to_load_it_and_keeps_a_text_of_its_owner(tmp_path):
    model = NdstackForCausalLM.wrap(network())
    model.save_pretrained(tmp_path / "model")
    card = tmp_path / "model" / "README.md"
    code = card.read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code.replace("this folder", str(tmp_path / "model")), names)
    assert isinstance(names["model"], NdstackForCausalLM)
    card.write_text("mine")
    model.save_pretrained(tmp_path / "model")
    assert card.read_text() == "mine"
    model.save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other" / "README.md").exists()


def test_weights_keep_the_dtype_of_their_folder_or_get_the_one_that_is_asked_for(tmp_path):
    model, load_model = NdstackForCausalLM.wrap(network()), transformers.AutoModelForCausalLM.from_pretrained
    model.save_pretrained(tmp_path / "single")
    model.double().save_pretrained(tmp_path / "double")

    def dtypes(folder, **options):
        return {parameter.dtype for parameter in load_model(tmp_path / folder, **options).parameters()}

    assert dtypes("single") == {torch.float32}
    assert dtypes("single", dtype=torch.bfloat16) == {torch.bfloat16}
    assert dtypes("double") == dtypes("double", dtype="auto") == {torch.float64}
    assert dtypes("double", dtype=torch.float32) == {torch.float32}
    made = transformers.AutoModelForCausalLM.from_config(model.config, dtype=torch.float64)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float64}
    import_run(tmp_path / "double", tmp_path / "own")
    assert load(tmp_path / "own").dtype == torch.float64


def test_an_imported_run_is_not_overwritten_by_resuming_it(tmp_path):
    export_run("zoo:dyck/rns-2-3", tmp_path / "hf")
    import_run(tmp_path / "hf", tmp_path / "run")
    before = (tmp_path / "run" / "best.safetensors").read_bytes()
    failed = ndstack("train", "--resume", tmp_path / "run", "--max-epochs", 500)
    assert failed.returncode == 2
    assert "has a trained model but no training state, so it cannot be resumed" in failed.stderr
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == before


def test_generation_with_padding_at_the_right_equals_that_of_strings_alone():
    own = network()
    model, tokenizer = NdstackForCausalLM.wrap(own), make_tokenizer(own)
    tokenizer.padding_side = "right"
    batch = tokenizer(["ab", "abbab", "b"], return_tensors="pt", padding=True)
    logits = model(**batch).logits[:, -1]
    for row, word in enumerate(["ab", "abbab", "b"]):
        alone = model(**tokenizer(word, return_tensors="pt")).logits[0, -1]
        torch.testing.assert_close(logits[row], alone)
    with pytest.raises(NdstackError, match=r"input_ids of shape \[2\] given, expected \[B, n\]"):
        model(torch.tensor([0, 1]))
