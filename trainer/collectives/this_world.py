"""The world of this process, over its engine. Importing this module imports neither Horovod nor torch."""

from typing import Final

from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.horovod_functions import HorovodTrainingWorld
from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld
from hvd_elastic.trainer.collectives.training_world import TrainingWorld

TORCH: Final = TorchTrainingWorld()
"""torch's default process group is global to its process, as Horovod's world is. In no world unless IS_TORCH."""

WORLD: Final[TrainingWorld] = TORCH if IS_TORCH else HorovodTrainingWorld()
