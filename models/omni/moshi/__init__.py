"""Moshi, a full-duplex speech model: transformers' ``MoshiForConditionalGeneration``.

A unit is one frame of its codec: 80 ms, 1,920 samples at 24 kHz. For each one the caller's frame is encoded
(``codec``), and the large transformer takes a step on the previous frames of both sides. A text token and the
codes of the bot's next frame are drawn (``steps``, whose past is in ``window``) and decoded to audio.
``speech`` decides whether the frame counts as speech, ``words`` converts tokens to text, ``host`` loads the
weights once and ``engine`` is one conversation. Importing ``settings`` needs no torch.
"""
