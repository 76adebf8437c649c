/* A page in a frame is dark where the page around it is: it follows the system by itself, and hears from here what the reader has chosen. */
function tellFrames() {
  for (const frame of document.querySelectorAll("iframe")) {
    frame.contentWindow.postMessage({ theme: document.body.dataset.theme }, "*");
  }
}

new MutationObserver(tellFrames).observe(document.body, { attributeFilter: ["data-theme"] });
for (const frame of document.querySelectorAll("iframe")) frame.addEventListener("load", tellFrames);
tellFrames();
