// Pages opened from the disk may not start workers, which search needs: there, a frame does the work of one.
class FrameWorker extends EventTarget {
  constructor(address) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.append(frame)
    this.inside = frame.contentWindow
    this.unsent = []
    addEventListener("message", (event) => {
      if (event.source !== this.inside) return
      const told = new MessageEvent("message", { data: event.data })
      this.dispatchEvent(told)
      if (this.onmessage) this.onmessage(told)
    })
    const page = frame.contentDocument
    page.open()
    page.write(`<!doctype html><body><script>
      postMessage = (data) => parent.postMessage(data, "*")
      importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise((done) => {
        const script = document.createElement("script")
        script.src = address
        script.onload = script.onerror = done
        document.body.append(script)
      })), Promise.resolve())
    <\/script></body>`)
    page.close()
    const script = page.createElement("script")
    script.src = new URL(address, document.baseURI).href
    script.onload = () => { this.ready = true; this.unsent.splice(0).forEach((data) => this.postMessage(data)) }
    page.body.append(script)
  }
  postMessage(data) {
    if (!this.ready) return void this.unsent.push(data)
    this.inside.dispatchEvent(new MessageEvent("message", { data, source: window }))
    if (this.inside.onmessage) this.inside.onmessage(new MessageEvent("message", { data }))
  }
  terminate() { this.inside.frameElement.remove() }
}
if (location.protocol === "file:") window.Worker = FrameWorker
