// Search runs in a Web Worker, which browsers refuse to pages on file://. There an iframe does its work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const scope = frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script");
          Object.assign(script, { src: address, onload: resolve, onerror: reject });
          scope.document.body.appendChild(script);
        });
      const tell = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }));
      scope.postMessage = (data) => tell(this, data);
      scope.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
      this.ready = load(new URL(url, document.baseURI).href);
      this.postMessage = (data) => this.ready.then(() => tell(scope, data));
      this.addEventListener("message", (event) => this.onmessage && this.onmessage(event));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
