"""PersonaPlex, NVIDIA's variant of Moshi with a role and a voice.

The network, the codec and the steps are those of ``models.omni.moshi``. ``prompt`` makes the frames that
precede a conversation: the reference voice, silence, the role, silence. ``host`` loads the weights and hosts
the engines. Importing ``settings`` needs no torch.
"""
