// Tables with class "sorts": a click on a heading sorts by it, a second click the other way round. A cell sorts by its
// data-key where it has one, else by the number that it is ("−1.5", "12 (3)"), "–" last, else by its text. A <select data-filters="ID"> shows the rows of one data-group.
(() => {
  const number = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?( %| \(\d+\))?$/;
  const key = (row, c) => {
    const cell = row.cells[c];
    if (cell.dataset.key !== undefined) return Number(cell.dataset.key);
    const text = cell.textContent.trim().replace("−", "-");
    return text === "–" ? Infinity : number.test(text) ? parseFloat(text) : text;
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  for (const table of document.querySelectorAll("table.sorts")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, c) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
        heads.forEach(h => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        [...body.rows].sort((a, b) => sign * compare(key(a, c), key(b, c))).forEach(row => body.append(row));
      });
    });
  }
  for (const filter of document.querySelectorAll("select[data-filters]")) {
    const rows = document.getElementById(filter.dataset.filters).tBodies[0].rows;
    filter.addEventListener("change", () => {
      let n = 0;
      for (const row of rows) { row.hidden = filter.value !== "" && row.dataset.group !== filter.value; n += !row.hidden; }
      filter.closest(".filter").querySelector("[role=status]").textContent = n + " of " + rows.length + " rows shown";
    });
  }
})();
