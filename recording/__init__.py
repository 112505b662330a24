"""Media that is stored along with the session.

Design of the recording of a call (docs/explanation/recording.md has the picture and the figures):

* ``track`` places the audio of one side on the time line of the call and cuts it into segments. It is pure.
* ``recorder`` holds the two tracks of a call and the timeline of its events, on the event loop. It hands
  segments over and never waits for a disk.
* ``disk`` is one thread for all calls with a bounded queue. It encodes, writes to a temporary name, syncs and
  renames.
* ``call_files`` reads and writes the files of one call; ``at_rest`` encrypts them where it is switched on.
* ``objects`` is a bucket of S3, and ``uploads`` the thread that moves finished calls there.
* ``folder`` knows names: where the recording of a call is, and what is in a folder that it is given.
* ``merge`` makes the stereo WAV of a call that is over. ``retention`` removes recordings. ``library`` lists
  and reads them for the readers of a session.
* ``comparison`` pairs the turns of a call and of its replay (``command.replay``); ``comparison_page`` shows
  them.

Slow: segments wait, up to a bound for each call. Full or failed: the segment is lost, counted, and the call
publishes ``RecordingDegraded``; later segments are tried again. Dead (a write that never returns): the
segments of every call are lost one by one, the calls go on, and the end of a call waits for
``recorder.CLOSE_S`` and ``LAST_S`` at most. Cancelled: a call that is cancelled closes its recording like any
other. Killed: what was renamed stays, so at most the present segment of each side is lost.
"""
