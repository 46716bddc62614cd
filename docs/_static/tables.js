// Labels for the cells of tables, which a narrow screen shows below each other.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => (cell.dataset.label = heads[place] ?? ""));
    }
  }
});
