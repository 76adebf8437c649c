/* A page in a frame is dark where the page around it is: it follows the system by itself, and hears from here what the reader has chosen. */
function tellFrames() {
  for (const frame of document.querySelectorAll("iframe")) {
    frame.contentWindow.postMessage({ theme: document.body.dataset.theme }, "*");
  }
}

new MutationObserver(tellFrames).observe(document.body, { attributeFilter: ["data-theme"] });
for (const frame of document.querySelectorAll("iframe")) frame.addEventListener("load", tellFrames);
tellFrames();

/* A page in a frame says how tall it is. */
addEventListener("message", ({ data, source }) => {
  if (!Number.isFinite(data?.height)) return;
  for (const frame of document.querySelectorAll("iframe")) if (frame.contentWindow === source) frame.style.height = `${data.height + 2}px`;
});
