
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Without a clipboard (as on plain HTTP) select the command, for Ctrl-C.
  const copy = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      return "Selected";
    }
  };
  for (const button of all(".command button")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.textContent = await copy(button.previousElementSibling);
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  const box = document.getElementById("filter");
  const told = document.getElementById("shown");
  const items = all("[data-words]").map((item) => [item, item.dataset.words.toLowerCase()]);
  const rows = all("tr[data-words]");
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [item, text] of items) item.hidden = !words.every((word) => text.includes(word));
    for (const group of all(".group")) group.hidden = all("article", group).every((one) => one.hidden);
    told.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  };
  box.closest("p").hidden = false;
  box.addEventListener("input", filter);
  filter();

  // Print the layers too; browsers with ::details-content do it without this.
  addEventListener("beforeprint", () => { for (const one of all("details")) one.open = true; });
})();
