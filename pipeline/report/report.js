// Sort a table by the column whose heading is chosen: numbers greatest first, text from A; undefined values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const isNumber = heading.classList.contains("number");
    const before = heading.getAttribute("aria-sort");
    const first = isNumber ? "descending" : "ascending";
    const direction = before === first ? (isNumber ? "ascending" : "descending") : first;
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const value = (row) => row.cells[column].dataset.value;
    const order = (a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === "" || right === "") return (left === "") - (right === "");
      return sign * (isNumber ? left - right : left.localeCompare(right));
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }));
}

// A link into an analysis that is folded unfolds it.
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
