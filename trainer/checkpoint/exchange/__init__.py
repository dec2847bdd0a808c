"""Files that others read and write: safetensors, `torch.save`, torch.distributed.checkpoint.

What passes through is a content: nested dictionaries of tensors and plain values (`plain_content`). Each format is one
module that writes a content and reads it back; `file_formats` knows which.
"""

from typing import Final

INDEX: Final = ".metadata"
"""The file that makes a folder one of torch.distributed.checkpoint."""
