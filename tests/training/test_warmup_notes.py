"""What a warmed-up model's notes say, and that old ones still read."""

import json

import msgspec

from quaere.dialects.notes import Notes, find_notes


def test_notes_say_what_was_taught_and_old_ones_still_read(tmp_path):
    def notes(**said):
        (tmp_path / "warmup.json").write_text(json.dumps(said))
        return find_notes(str(tmp_path))

    assert notes(style="brief", recipe="drzero", num_episodes=3) == Notes(
        "brief", taught=("drzero",), dialect="tool-call"
    )
    assert notes(style="full", recipe="eve", evidence=True) == Notes(
        "full", evidence=True, taught=("eve",), dialect="tool-call"
    )
    both = notes(style="full", recipe="eve", also=["drzero"], evidence=True)
    assert both.evidence and both.taught == ("eve", "drzero")
    assert notes(style="full") == Notes("full")
    assert not Notes().evidence and Notes().taught == ()


def test_an_export_was_taught_what_the_model_it_was_trained_from_was(tmp_path):
    export = {"style": "brief", "recipe": "search-r1", "dialect": "search-r1"}
    (tmp_path / "quaere.json").write_text(json.dumps(export))
    assert find_notes(str(tmp_path)).taught == ()
    warmup = {"recipe": "eve", "also": ["search-r1"], "base_model": "base", "style": "full"}
    (tmp_path / "quaere.json").write_text(json.dumps(export | {"warmup": warmup}))
    notes = find_notes(str(tmp_path))
    assert (notes.taught, notes.untaught) == (("eve", "search-r1"), "base")
    assert (notes.style, notes.dialect) == ("brief", "search-r1")


def test_an_old_manifest_still_reads():
    from quaere.warmup.imitation import WarmupManifest

    later = ("also", "evidence", "fact_ratio", "lesson_ratio", "learnt", "stopped")
    later += ("ignore_rubrics", "scores_only", "shuffle_scores")
    old = {name: 0 for name in WarmupManifest.__struct_fields__ if name not in later}
    old |= {"recipe": "drzero", "data": "oracle", "teacher": "", "base_model": "m", "style": "full"}
    old |= {"roles": ["solver"], "hop_ratio": [1], "world_family": "warmup", "num_dropped": {}}
    read = msgspec.json.decode(json.dumps(old), type=WarmupManifest)
    assert read.also == () and not read.evidence
