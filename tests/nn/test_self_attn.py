"""`StackAttention` in the place of `self_attn` in torch's own layers, with and without padding."""

import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.nn import DotProductAttention, StackAttention, Transformer
from ndstack.stacks import Nondeterministic, Superposition

D = 6
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask
STACKS = {"sup": lambda: Superposition(D), "vrns": lambda: Nondeterministic(2, 2, 3)}


def attention(stack="vrns", **options):
    torch.manual_seed(1)
    return StackAttention(D, STACKS[stack](), **options)


def encoder_layer(batch_first=True, **options):
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(D, 2, 8, 0.0, batch_first=batch_first, **options)
    layer.self_attn = attention(batch_first=batch_first)
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_does_what_it_says(training, norm_first):
    layer = encoder_layer(norm_first=norm_first).train(training)
    x = torch.randn(2, 5, D)
    with torch.set_grad_enabled(training):  # without gradients torch would use attention of its own
        output = layer(x)
        assert torch.equal(layer(x, CAUSAL(5), is_causal=True), output)
        if norm_first:
            h = x + layer.self_attn(layer.norm1(x))[0]
            expected = h + layer._ff_block(layer.norm2(h))
        else:
            h = layer.norm1(x + layer.self_attn(x)[0])
            expected = layer.norm2(h + layer._ff_block(h))
        torch.testing.assert_close(output, expected)


def test_batch_second():
    layer, other, x = encoder_layer(), encoder_layer(batch_first=False), torch.randn(2, 5, D)
    torch.testing.assert_close(other(x.transpose(0, 1)).transpose(0, 1), layer(x))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_padding_makes_no_step_wherever_it_is(stack, side):
    part, lengths, n = attention(stack), [5, 2, 0, 4], 6
    places = {
        "right": [list(range(k)) for k in lengths],
        "left": [list(range(n - k, n)) for k in lengths],
        "holes": [[0, 1, 3, 4, 5], [1, 4], [], [0, 2, 4, 5]],
    }[side]
    mask = torch.ones(4, n, dtype=torch.bool)
    strings = [torch.randn(k, D) for k in lengths]
    x = torch.full((4, n, D), float("nan"))
    for row, (own, string) in enumerate(zip(places, strings, strict=True)):
        mask[row, own], x[row, own] = False, string
    x.requires_grad_()
    y, state = part(x, key_padding_mask=mask)
    assert state is None
    (y.sin().sum()).backward()
    found = [p.grad.clone() for p in part.parameters()]
    part.zero_grad()
    for row, (own, string) in enumerate(zip(places, strings, strict=True)):
        alone = string[None].requires_grad_()
        expected, _ = part(alone)
        torch.testing.assert_close(y[row, own], expected[0])
        if own:
            expected.sin().sum().backward()
            torch.testing.assert_close(x.grad[row, own], alone.grad[0])
    assert not y[mask].any()
    assert not x.grad[mask].any()
    torch.testing.assert_close(found, [p.grad for p in part.parameters()])
    floats = torch.zeros(mask.shape).masked_fill(mask, -torch.inf)
    torch.testing.assert_close(part(x, key_padding_mask=floats)[0], y)


def test_whole_encoders_and_decoders_of_torch_with_padding():
    x, lengths = torch.randn(3, 5, D), [5, 2, 4]
    mask = torch.arange(5) >= torch.tensor(lengths)[:, None]
    encoder = torch.nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False)
    torch.manual_seed(3)
    layer = torch.nn.TransformerDecoderLayer(D, 2, 8, 0.0, batch_first=True)
    layer.self_attn = attention()
    decoder, memory = torch.nn.TransformerDecoder(layer, 2), torch.randn(3, 4, D)
    for training in (True, False):
        encoder.train(training), decoder.train(training)
        with torch.set_grad_enabled(training):
            encoded = encoder(x, src_key_padding_mask=mask)
            decoded = decoder(x, memory, CAUSAL(5), tgt_key_padding_mask=mask, tgt_is_causal=True)
            for row, k in enumerate(lengths):
                torch.testing.assert_close(encoded[row, :k], encoder(x[row : row + 1, :k])[0])
                alone = decoder(x[row : row + 1, :k], memory[row : row + 1])
                torch.testing.assert_close(decoded[row, :k], alone[0])


def test_device_and_dtype_are_those_of_the_parameters():
    part = StackAttention(D, Nondeterministic(2, 2, 3), device="cpu", dtype=torch.float64)
    assert {parameter.dtype for parameter in part.parameters()} == {torch.float64}
    assert part(torch.randn(2, 4, D, dtype=torch.float64))[0].dtype == torch.float64


@pytest.mark.parametrize("network", [DotProductAttention(4, 2), Transformer(4, heads=2)])
def test_inputs_of_another_dtype_get_one_line_elsewhere_too(network):
    with pytest.raises(NdstackError, match=r"input of torch.float64 given to a network of torch.float32"):
        network(torch.randn(2, 3, 4, dtype=torch.float64))


def test_what_it_cannot_do_gets_one_line():
    part, x = attention(), torch.randn(2, 4, D)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    whole = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(D, 2, 8, batch_first=True), 1).eval()
    whole.layers[0].self_attn = part
    for use, message in (
        (lambda: part(x, x + 1, x), "give it as query, key and value"),
        (lambda: part(x, x, x, need_weights=True), "no attention weights in common"),
        (lambda: part(x, attn_mask=torch.zeros(4, 4, dtype=torch.bool)), "that is not causal given"),
        (lambda: part(x, attn_mask=CAUSAL(3)), r"of shape \[3, 3\] that is not causal given"),
        (lambda: part(x, key_padding_mask=mask[:, 1:]), r"of shape \[2, 3\] given, expected \[2, 4\]"),
        (lambda: part(x, part.start(2), key_padding_mask=mask), "both a state and a key_padding_mask"),
        (lambda: part(x, key_padding_mask=mask.long()), "of torch.int64 given, .*=attention_mask == 0; or 0"),
        (
            lambda: part(x, key_padding_mask=(~mask).float()),
            "of torch.float32 with numbers besides 0 and -inf",
        ),
        (
            lambda: part(x, attn_mask=CAUSAL(4).isinf().int()),
            "attn_mask of torch.int32 given, expected truth",
        ),
        (
            lambda: part(x.double()),
            r"torch.float64 given to a network of torch.float32; use x.to\(torch.float32",
        ),
        (
            lambda: part(x, lengths=torch.tensor([4, 2])),
            r"lengths=tensor\(\[4, 2\]\) given.*key_padding_mask=torch",
        ),
        (
            lambda: part(x, attention_mask=torch.ones(2, 90)),
            "^attention_mask given, which .* == 0, which is True",
        ),
        (
            lambda: StackAttention(D, Superposition(D), num_heads=2),
            "num_heads=2 given, which .*; it has one head",
        ),
        (lambda: whole(x, src_key_padding_mask=mask), "enable_nested_tensor=False"),
    ):
        with pytest.raises(NdstackError, match=message), torch.no_grad():
            use()
