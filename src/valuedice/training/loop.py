"""The loop: Algorithm 1 of the paper, for online, offline and on-policy learning alike.

| pseudocode of the paper                    | here                                                        |
|--------------------------------------------|-------------------------------------------------------------|
| initialise π                               | `opening.play`: cloned or loaded, if not new; round 0       |
| a ~ π(·|s), s′ ~ P(s, a), R ← R ∪ (s, a, s′) | `actor.step`: nothing offline, one step of each environment |
| draw batches from D and R                  | `learner.learn`, which takes them from its `batches`        |
| ν, π ← a step of J                         | `algorithm.update`, K of them in one compiled call          |
"""

from __future__ import annotations

from valuedice.errors import DivergenceError
from valuedice.training.acting import Actor
from valuedice.training.choice import Choice
from valuedice.training.config import TrainConfig
from valuedice.training.evaluation import Evaluation
from valuedice.training.learner import Learner
from valuedice.training.loggers import Progress
from valuedice.training.opening import Opening
from valuedice.training.progress import Display
from valuedice.training.run_folder import RunFolder
from valuedice.training.stopping import deferred_signals


def run_training(
    config: TrainConfig,
    opening: Opening,
    learner: Learner,
    actor: Actor,
    evaluation: Evaluation,
    choice: Choice,
    folder: RunFolder,
    display: Display,
) -> None:
    """Acts, stores, draws, updates; now and then evaluates, logs and saves. Continues at `folder.done`."""
    if evaluation.reached(folder.rows):
        return
    opens = not opening.empty and not folder.rows
    with deferred_signals() as signals:
        for done, updates, evaluates in config.rounds(folder.done, learner.algorithm.pace, opens=opens):
            if done > 0:
                actor.step(learner.policy)
                learner.learn(updates)
            elif not opening.play(lambda: signals.caught is not None, display.opening):
                folder.stop(signals.caught, save=False)
            folder.done = done
            display.advance(done)
            over = done == config.total
            row = evaluation.begin(done, folder.seconds)
            try:
                evaluation.guard.check_finite(learner.losses, done)
                if evaluates:
                    evaluation.fill(row, done)
                    if evaluation.guard.suspicious:
                        folder.log(row, None, None)
                    else:
                        choice.consider(row, learner.policy)
                        folder.log(row, learner.policy, choice.policy)
                    display.evaluated(row)
                    progress = Progress(row["step"], learner.updates, dict(row), learner.policy)
                    stopped = tell(config, folder, progress, save=not evaluation.guard.suspicious)
                    over = over or stopped or evaluation.reached(folder.rows)
                # What looks like divergence never replaces a good checkpoint.
                if not evaluation.guard.suspicious:
                    folder.save(now=over or done == 0)
            except DivergenceError as error:
                if not folder.rows or folder.rows[-1] is not row:
                    folder.log(row | learner.losses, None, None)
                help_text = f"What usually helps, in a new run folder: {learner.algorithm.remedies}."
                raise DivergenceError(f"{error} {help_text} {folder.kept()}.") from None
            if over:
                return
            if signals.caught is not None:
                folder.stop(signals.caught, save=not evaluation.guard.suspicious)


def tell(config: TrainConfig, folder: RunFolder, progress: Progress, *, save: bool) -> bool:
    """Calls the user's loggers and callback; returns whether the run should end. If one raises, the run is saved
    first, unless `save` is False."""
    try:
        for logger in config.loggers:
            # A copy for each: some loggers take the row apart.
            logger.log(dict(progress.metrics))
        return config.on_evaluation is not None and bool(config.on_evaluation(progress))
    except BaseException:
        if save:
            folder.save(now=True)
        raise
