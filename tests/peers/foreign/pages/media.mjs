/* Media of the pages for Pipecat's WebRTC transport, which takes one as an option. */

async function devices(wanted) {
  return (await navigator.mediaDevices.enumerateDevices()).filter(({ kind }) => kind === wanted);
}

/** The page's own microphone, in place of Daily's library. */
export class PageMedia {
  isCamEnabled = false;
  isMicEnabled = true;
  selectedMic = {};
  selectedCam = {};
  selectedSpeaker = {};
  #callbacks = {};
  #track = null;

  setClientOptions({ callbacks }) {
    this.#callbacks = callbacks;
  }

  async initialize() {
    [this.#track] = (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks();
    [this.selectedMic] = await this.getAllMics();
    this.#callbacks.onMicUpdated?.(this.selectedMic);
  }

  async connect() {
    if (this.#track?.readyState !== "live") await this.initialize();
  }

  async disconnect() {
    this.#track?.stop();
  }

  enableMic(enable) {
    this.isMicEnabled = this.#track.enabled = enable;
  }

  getAllMics() {
    return devices("audioinput");
  }

  getAllCams() {
    return devices("videoinput");
  }

  getAllSpeakers() {
    return devices("audiooutput");
  }

  tracks() {
    return { local: { audio: this.#track } };
  }
}
