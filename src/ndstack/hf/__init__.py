"""Language models of ndstack as causal language models of Hugging Face's `transformers`, and back.

    import ndstack.hf
    model, tokenizer = ndstack.hf.from_run("zoo:dyck/rns-2-3")
    model.save_pretrained("dyck")
    transformers.AutoModelForCausalLM.from_pretrained("dyck")

Importing this package makes the classes known to the Auto classes; `pip install 'ndstack[transformers]'` has
what it needs.
"""

from ndstack.errors import NdstackError

try:
    import transformers
except ImportError:
    raise NdstackError(
        "ndstack.hf needs transformers; install it with pip install 'ndstack[transformers]'"
    ) from None

from ndstack.hf.cache import NdstackCache
from ndstack.hf.configuration import NdstackConfig
from ndstack.hf.conversion import export_run, from_run, import_run
from ndstack.hf.modeling import NdstackForCausalLM
from ndstack.hf.tokenization import make_tokenizer

transformers.AutoConfig.register(NdstackConfig.model_type, NdstackConfig)
transformers.AutoModelForCausalLM.register(NdstackConfig, NdstackForCausalLM)

__all__ = [
    "NdstackCache",
    "NdstackConfig",
    "NdstackForCausalLM",
    "export_run",
    "from_run",
    "import_run",
    "make_tokenizer",
]
