"""Sounds over the bot's voice of the tuning side: people, voice generators, synthetic hums and coughs.

The report side (``evals.turns.yield_calls``) has no synthetic hums and coughs, since both sides would then
share a generator.
"""

from parley.evals.human.split import Split, load_tuning
from parley.evals.turns import sounds
from parley.evals.turns.overlap_calls import Sound
from parley.evals.turns.yield_calls import SoundMaterial, SpokenSound, YieldScript, generated_sounds
from research.turn_taking.floor_texts import CLAIMING, LISTENING

OF_A_SOURCE = 200
# Replies of each kind in a call; on the report side each sound is used once.
TUNING_CALL = (
    *[Sound.SENTENCE] * 5,
    *[Sound.COMMAND] * 4,
    *[Sound.BACKCHANNEL] * 5,
    *[Sound.HUM, Sound.COUGH, Sound.COUGH, Sound.SIDE_TALK, Sound.ECHO],
)


def tuning_material() -> SoundMaterial:
    """Return people of the tuning side, and its generators.

    Raises:
        ConfigError: recordings were not fetched.
    """
    generated = tuple(generated_sounds(Split.TUNING, CLAIMING, LISTENING))
    return SoundMaterial(load_tuning(), generated, of_a_source=OF_A_SOURCE)


class TuningScript(YieldScript):
    """Call of the tuning side, whose sounds are drawn."""

    def drawn(self, kind: Sound) -> SpokenSound | None:
        """Draw a sound of a kind; None for the echo alone."""
        rng = self._rng
        if kind in (Sound.ECHO, Sound.SIDE_TALK):
            return super().drawn(kind)
        if kind is Sound.HUM:
            return SpokenSound(kind, "sounds", sounds.hum(rng), is_human=False)
        if kind is Sound.COUGH and rng.random() < 0.4:
            return SpokenSound(kind, "sounds", sounds.cough(rng), is_human=False)
        rows = self._material.of(kind)
        # People and generators are drawn equally often, however many of each there are.
        people = [each for each in rows if each.is_human]
        others = [each for each in rows if not each.is_human]
        chosen = people if people and (not others or rng.random() < 0.5) else others
        return self._pick(chosen)
