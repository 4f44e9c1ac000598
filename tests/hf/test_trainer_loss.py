"""`Trainer` divides losses by the number of predicted symbols, wherever there is padding."""

import pytest
import torch
import transformers

from ndstack.errors import NdstackError
from ndstack.hf import NdstackForCausalLM, from_run, make_tokenizer
from ndstack.nn import models

STRINGS = ["a", "ababbaab", "bba", "", "abba", "b", "aab", "abbabbab"]


def small(name="sup-3"):
    own = models.build(name, ("a", "b"), seed=3, hidden=6)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter *= 4  # so that predictions differ
    return own.eval()


def make_trainer(own, folder, side, collator=None, **options):
    tokenizer = make_tokenizer(own)
    tokenizer.padding_side = side
    data = [tokenizer(f"{word}<eos>") for word in STRINGS]
    data = [{**row, "labels": row["input_ids"]} for row in data] if collator else data
    collator = collator or (lambda given: transformers.DataCollatorForLanguageModeling(given, mlm=False))
    arguments = transformers.TrainingArguments(
        folder, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1, max_grad_norm=0.0, **options
    )
    return transformers.Trainer(
        NdstackForCausalLM.wrap(own), arguments, train_dataset=data, eval_dataset=data,
        data_collator=collator(tokenizer),
    )  # fmt: skip


@pytest.mark.parametrize("side", ["left", "right"])
def test_evaluated_losses_are_per_symbol(side, tmp_path):
    own = small()
    trainer = make_trainer(own, tmp_path, side, per_device_eval_batch_size=len(STRINGS))
    expected = own.cross_entropy(STRINGS, per="symbol").item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("accumulated", [1, 2, 4])
@pytest.mark.parametrize("side", ["left", "right"])
def test_training_losses_and_gradients_are_per_symbol(side, accumulated, tmp_path):
    """Micro-batches have different numbers of symbols, so that a mean of means would be wrong."""
    own = small()
    trainer = make_trainer(
        own, tmp_path, side, max_steps=1, per_device_train_batch_size=len(STRINGS) // accumulated,
        gradient_accumulation_steps=accumulated, optim="sgd", learning_rate=0.5, lr_scheduler_type="constant",
    )  # fmt: skip
    trainer.train()
    expected = own.cross_entropy(STRINGS, per="symbol")
    expected.backward()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)
    for one, other in zip(trainer.model.network.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other - 0.5 * other.grad, rtol=1e-4, atol=1e-6)


def test_labels_that_trainer_counts_in_vain_are_refused(tmp_path):
    with pytest.raises(NdstackError, match=r"labels of BOS given after padding.* = -100$"):
        make_trainer(small(), tmp_path, "left", transformers.DataCollatorForSeq2Seq).evaluate()
    own = small()
    right = make_trainer(own, tmp_path, "right", transformers.DataCollatorForSeq2Seq)
    expected = own.cross_entropy(STRINGS, per="symbol").item()
    assert right.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["sup-3", "tf+sup-4"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_masks_that_are_left_out_or_made_of_padding(side, name):
    """`<pad>` is BOS, too, so such a mask hides BOS, which must make no difference."""
    own = (
        small() if name == "sup-3" else models.build(name, ("a", "b"), d_model=8, heads=2, dropout=0.0).eval()
    )
    model, tokenizer = NdstackForCausalLM.wrap(own), make_tokenizer(own)
    tokenizer.padding_side = side
    batch = tokenizer([f"{word}<eos>" for word in STRINGS], return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.input_ids == tokenizer.pad_token_id, -100)
    expected = own.cross_entropy(STRINGS, per="symbol")
    torch.testing.assert_close(model(**batch, labels=labels).loss, expected)
    torch.testing.assert_close(model(batch.input_ids, labels=labels).loss, expected)


def test_strings_that_begin_with_nothing():
    model, tokenizer = from_run("zoo:dyck/sup-10")
    batch = tokenizer([""] * 3, return_tensors="pt")
    made = []
    for given in (dict(batch), {"inputs": batch.input_ids}, {"num_return_sequences": 3}):
        torch.manual_seed(1)
        made.append(model.generate(**given, max_new_tokens=8, do_sample=True).tolist())
    assert made[0] == made[1] == made[2]
    logits = model(batch.input_ids).logits
    torch.testing.assert_close(logits[:, 0, :-1], model.network.logits([""] * 3)[:, 0])
