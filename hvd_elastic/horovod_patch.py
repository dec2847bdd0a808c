"""The changes to the source of Horovod 0.28.1 before it is compiled, and their reasons.

`EDITS` are replacements of text that must occur in a file exactly once. They repair what cannot be repaired from
outside: connection errors that end the process, or that a waiting thread never learns of.
`hvd_elastic.trainer.elastic.horovod_patches` replaces functions of the installed Horovod.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final


class PatchError(ValueError):
    """The source differs from the one that the edits were written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replacement of text in a file."""

    path: str
    """Relative to the root of the source."""
    before: str
    """Occurs in the file exactly once."""
    after: str
    why: str


def cxx_standard_edits(standard: int) -> tuple[Edit, ...]:
    """Horovod hard-codes C++14; torch's headers ask for 17 (torch >= 2.1) or 20 (torch >= 2.15)."""
    if standard == 14:
        return ()
    return tuple(
        Edit(
            path=path,
            before="CMAKE_CXX_STANDARD 14",
            after=f"CMAKE_CXX_STANDARD {standard}",
            why="torch's headers do not compile with an older standard",
        )
        for path in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
    )


_OPERATIONS: Final = "horovod/common/operations.cc"
_PAIR: Final = "third_party/gloo/gloo/transport/tcp/pair.cc"
_PROCESS_SETS: Final = "horovod/common/process_set"
_BASICS: Final = "horovod/common/basics.py"

_MIXED_UP: Final = (
    "after an operation that a dead peer broke, the loop goes on to negotiate over the connections to the survivors. "
    "They are still in that operation, take the message for a part of it, and abort (Gloo's "
    "`op.preamble.length <= op.nbytes`) or reduce it"
)
"""The reason for three of the edits."""

_NEGOTIATED: Final = (
    "a script's own process sets are removed by negotiation with all processes, even if one of them is dead: the "
    "exception ends the survivors"
)
_SHUT_DOWN: Final = (
    "a peer that dies while a process set is added or removed looks like a mistake of the script, and the process set "
    "that is then looked up has been freed"
)

EDITS: Final = (
    Edit(
        path=_OPERATIONS,
        before='#include "ops/gloo_operations.h"\n',
        after='#include "ops/gloo_operations.h"\n#include "gloo/common/error.h"\n',
        why=_MIXED_UP,
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
    global_gloo_context.Initialize(ParseGlooIface());
  }
  if (state.control_operation == LibType::GLOO) {
    // Initializes global controller
    state.process_set_table.Initialize(global_gloo_context);
  }
""",
        after="""\
    try {
      global_gloo_context.Initialize(ParseGlooIface());
      if (state.control_operation == LibType::GLOO) {
        state.process_set_table.Initialize(global_gloo_context);
      }
    } catch (const std::exception& ex) {
      LOG(WARNING) << "Horovod could not be initialized: " << ex.what();
      if (state.control_operation == LibType::GLOO) {
        state.process_set_table.Finalize(global_gloo_context, SHUT_DOWN_ERROR);
      }
      global_gloo_context.Finalize();
      SetBoolFromEnv(HOROVOD_ELASTIC, state.elastic_enabled, true);
      state.initialization_failed = true;
      return;
    }
  }
#if HAVE_MPI
  if (global_mpi_context.IsEnabled() &&
      state.control_operation == LibType::GLOO) {
    // Initializes global controller
    state.process_set_table.Initialize(global_gloo_context);
  }
#endif // HAVE_MPI
""",
        why="a peer that dies while the world is formed ends this process: the exception leaves its thread. "
        "`hvd.init()` raises instead, and may be called again after `hvd.shutdown()`",
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
    horovod_global.initialization_done = false;
    horovod_global.background_thread =
""",
        after="""\
    horovod_global.initialization_done = false;
    horovod_global.initialization_failed = false;
    horovod_global.background_thread =
""",
        why="after one failed initialization every later one fails too",
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
  Status status;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
        after="""\
  Status status;
  bool connection_lost = false;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
        why=_MIXED_UP,
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
        << "ExecuteOperation Failed";
    status = Status::UnknownError(ex.what());
  }

  if (!status.in_progress()) {
    for (auto& e : entries) {
      timeline.End(e.tensor_name, status.ok() ? e.output : nullptr);
      e.FinishWithCallback(status);
    }
  }
""",
        after="""\
        << "ExecuteOperation Failed";
    status = Status::UnknownError(ex.what());
#if HAVE_GLOO
    connection_lost = dynamic_cast<const gloo::IoException*>(&ex) != nullptr;
#endif
  }

  if (!status.in_progress()) {
    for (auto& e : entries) {
      timeline.End(e.tensor_name, status.ok() ? e.output : nullptr);
      e.FinishWithCallback(status);
    }
  }
  if (connection_lost) {
    throw std::runtime_error(status.reason());
  }
""",
        why=_MIXED_UP,
    ),
    Edit(
        path=_PAIR,
        before="""\
    if (op.buf != nullptr) {
      op.buf->signalException(ex);
    }
  }

  // Loop through pending send operations.
""",
        after="""\
    if (op.buf != nullptr) {
      op.buf->signalException(ex);
    }
    NonOwningPtr<UnboundBuffer> sending(op.ubuf);
    if (sending) {
      sending->signalException(ex);
    }
  }

  // The receive operation that has begun.
  NonOwningPtr<UnboundBuffer> receiving(rx_.ubuf);
  if (receiving) {
    receiving->signalException(ex);
  }

  // Loop through pending send operations.
""",
        why="a process in the middle of a message whose peer dies is not told, and waits for the Gloo time-out",
    ),
    Edit(
        path=f"{_PROCESS_SETS}.h",
        before="""\
  int32_t RegisterProcessSet(std::vector<int> global_ranks = {});
""",
        after="""\
  // Finalize and remove all process sets but the global one without asking the
  // other processes, of whom one is lost.
  void Abandon(const Status& status);

  int32_t RegisterProcessSet(std::vector<int> global_ranks = {});
""",
        why=_NEGOTIATED,
    ),
    Edit(
        path=f"{_PROCESS_SETS}.cc",
        before="""\
int32_t ProcessSetTable::RegisterProcessSet(std::vector<int> global_ranks) {
""",
        after="""\
void ProcessSetTable::Abandon(const Status& status) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  for (auto id : Ids()) {
    if (id != 0) {
      Get(id).Finalize(status);
      DeregisterProcessSet(id);
    }
  }
  id_to_be_removed_ = NO_PENDING_REMOVAL;
}

int32_t ProcessSetTable::RegisterProcessSet(std::vector<int> global_ranks) {
""",
        why=_NEGOTIATED,
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
        << "Horovod could not be initialized: " << ex.what();
    state.initialization_failed = true;
    goto shutdown;
""",
        after="""\
        << "Horovod could not be initialized: " << ex.what();
    state.initialization_failed = true;
    state.shut_down = true;
    state.process_set_table.Abandon(SHUT_DOWN_ERROR);
    goto shutdown;
""",
        why=_NEGOTIATED,
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
        << "Horovod background loop uncaught exception: " << ex.what();
  }
""",
        after="""\
        << "Horovod background loop uncaught exception: " << ex.what();
    state.shut_down = true;
    state.process_set_table.Abandon(SHUT_DOWN_ERROR);
  }
""",
        why=_NEGOTIATED,
    ),
    Edit(
        path=_OPERATIONS,
        before="""\
    if (process_set->initialization_done) {
      return id;
    }
    if (horovod_global.shut_down) {
      return HOROVOD_PROCESS_SET_ERROR_SHUTDOWN;
    }
""",
        after="""\
    {
      std::lock_guard<std::recursive_mutex> table_lock(
          horovod_global.process_set_table.mutex);
      if (horovod_global.shut_down) {
        return HOROVOD_PROCESS_SET_ERROR_SHUTDOWN;
      }
      if (process_set->initialization_done) {
        return id;
      }
    }
""",
        why=_SHUT_DOWN,
    ),
    *(
        Edit(
            path=_BASICS,
            before=f"""\
            raise ValueError('Horovod is shutting down.')
        elif result == self.HOROVOD_PROCESS_SET_ERROR_DYNAMIC:
            raise ValueError(
                "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {doing} process sets after Horovod initialization.")
""",
            after=f"""\
            from horovod.common.exceptions import HorovodInternalError
            raise HorovodInternalError('Horovod is shutting down.')
        elif result == self.HOROVOD_PROCESS_SET_ERROR_DYNAMIC:
            raise ValueError(
                "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {doing} process sets after Horovod initialization.")
""",
            why=_SHUT_DOWN,
        )
        for doing in ("adding", "removing")
    ),
)


def apply(source: Path, edits: tuple[Edit, ...]) -> None:
    """Change the source tree in place. Raises PatchError if a text does not occur exactly once."""
    for edit in edits:
        path = source / edit.path
        text = path.read_text()
        if text.count(edit.before) != 1:
            first = edit.before.splitlines()[0].strip()
            raise PatchError(f"{edit.path} differs from the file that this patch was written for (at `{first}`)")
        path.write_text(text.replace(edit.before, edit.after))
