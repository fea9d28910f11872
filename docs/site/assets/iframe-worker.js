// Browsers start no worker for a page that was opened as a file. The search then runs in a
// hidden frame instead: the theme looks for IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    addEventListener("message", (event) => {
      if (event.source === this.inside)
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    const inside = this.inside.document;
    inside.open();
    inside.write(
      "<body><script>postMessage = (data) => parent.postMessage(data, '*')</script>" +
        `<script src="${url}"></script>`,
    );
    inside.close();
    this.loaded = new Promise((done) => (this.inside.onload = done));
  }

  postMessage(data) {
    this.loaded.then(() =>
      this.inside.dispatchEvent(new MessageEvent("message", { data })),
    );
  }
}
window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;
