"use strict";
const rows = [...document.querySelectorAll("main details")];
const texts = new Map();
const search = document.querySelector("#search");
const found = document.querySelector("#found");
const failed = document.querySelector("#failed");
const bad = new Set(rows.filter((row) => row.querySelector("summary .bad")));
const text = (row) => {
  if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
  return texts.get(row);
};
const look = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = failed.ariaPressed === "true";
  let shown = 0;
  for (const row of rows) {
    row.hidden = (only && !bad.has(row)) || !words.every((word) => text(row).includes(word));
    shown += row.hidden ? 0 : 1;
  }
  found.textContent = only || words.length ? `${shown} of ${rows.length} rows` : "";
};
search.addEventListener("input", look);
failed.textContent = `Only failed (${bad.size})`;
failed.hidden = bad.size === 0;
failed.addEventListener("click", () => {
  failed.ariaPressed = String(failed.ariaPressed !== "true");
  look();
});
for (const [id, open] of [["open", true], ["close", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const row of rows) if (!row.hidden) row.open = open;
  });
}
document.querySelector(".tools").hidden = false;
