// Live updates: the server says that something changed, and the page's inside is asked for again.
"use strict";
(() => {
  const main = document.getElementById("main"), state = document.getElementById("state");
  const filters = new Map();

  // Tables that do not fit a screen get a field to search them.
  const searchable = () => {
    for (const section of main.querySelectorAll("section[id]")) {
      const rows = section.querySelectorAll("tbody tr");
      if (rows.length < 12) continue;
      const field = document.createElement("input");
      field.type = "search"; field.className = "filter"; field.placeholder = "Search these rows";
      field.setAttribute("aria-label", "Search these rows");
      field.value = filters.get(section.id) || "";
      const apply = () => {
        filters.set(section.id, field.value);
        const wanted = field.value.toLowerCase();
        for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      };
      field.addEventListener("input", apply);
      section.prepend(field);
      apply();
    }
  };

  const tell = (word) => {
    state.textContent = word;
    state.className = word === "live" ? "state live" : "state lost";
  };

  const refresh = async () => {
    const answer = await fetch(location.pathname + location.search, { headers: { "X-Dovetail-Part": "main" } });
    if (!answer.ok) return;
    tell(answer.headers.get("X-Dovetail-State") || "live");
    // A person who types or walks through the page with the keyboard keeps the place.
    const held = document.activeElement;
    const field = held && held.className === "filter" ? held.closest("section").id : "";
    const link = held && main.contains(held) ? held.getAttribute("href") : "";
    main.innerHTML = await answer.text();
    document.getElementById("as-of").textContent = answer.headers.get("X-Dovetail-As-Of") || "";
    searchable();
    if (field) document.querySelector(`section[id="${CSS.escape(field)}"] .filter`)?.focus();
    else if (link) main.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
  };

  // A recording has a slider: the page of that time is asked for when it is let go.
  const time = document.getElementById("time");
  if (time) {
    const moment = () => new Date(time.value * 1000).toISOString().slice(0, 19);
    time.addEventListener("input", () => {
      document.getElementById("time-of").textContent = moment().replace("T", " ") + " UTC";
    });
    time.addEventListener("change", () => {
      const wanted = new URLSearchParams(location.search);
      wanted.set("at", moment() + ".999Z");
      location.search = wanted;
    });
  }

  searchable();
  if (!state.classList.contains("live")) return;
  const stream = new EventSource(document.body.dataset.root + "stream");
  let seen = "";
  stream.addEventListener("picture", (event) => {
    if ((seen && seen !== event.data) || state.textContent === "not connected") refresh();
    seen = event.data;
  });
  stream.addEventListener("error", () => tell("not connected"));
})();
