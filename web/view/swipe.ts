/** A finger that moves a row this far completes or deletes it. */
const ACTION_PX = 96;
/** A shorter movement is a tap. */
const TAP_PX = 12;
/** At the edges of the screen, swipes belong to the system. */
const EDGE_PX = 24;

/** Lets a finger tick a row by a swipe to the right, and delete it by one to the left. */
export function installSwipe(list: HTMLElement): void {
  let swipe:
    | { readonly row: HTMLElement; readonly wasDone: boolean; readonly start: PointerEvent; distance: number }
    | undefined;
  list.addEventListener("pointerdown", (start) => {
    const { target, pointerType, clientX, isPrimary } = start;
    const row = target instanceof Element ? target.closest<HTMLElement>(".todo") : null;
    const isAtEdge = clientX < EDGE_PX || clientX > innerWidth - EDGE_PX;
    const box = row?.querySelector<HTMLInputElement>("input:enabled");
    if (row && box && pointerType === "touch" && isPrimary && !isAtEdge)
      swipe = { row, wasDone: box.checked, start, distance: 0 };
  });
  list.addEventListener("pointermove", ({ pointerId, clientX, clientY }) => {
    if (swipe?.start.pointerId !== pointerId) return;
    const { row, start } = swipe;
    const distance = clientX - start.clientX;
    const isTap = Math.abs(distance) < Math.max(TAP_PX, Math.abs(clientY - start.clientY));
    if (isTap && swipe.distance === 0) return;
    list.setPointerCapture(pointerId);
    swipe.distance = distance;
    row.toggleAttribute("data-far", Math.abs(distance) >= ACTION_PX);
    row.dataset.swipe = distance > 0 ? "right" : "left";
    row.style.translate = `${distance}px`;
  });
  for (const type of ["pointerup", "pointercancel"] as const)
    list.addEventListener(type, ({ pointerId }) => {
      if (swipe?.start.pointerId !== pointerId) return;
      const { row, wasDone, distance } = swipe;
      swipe = undefined;
      delete row.dataset.swipe;
      delete row.dataset.far;
      row.style.translate = "";
      if (type === "pointercancel" || Math.abs(distance) < ACTION_PX) return;
      const box = row.querySelector("input");
      if (distance < 0) row.querySelector("button")?.click();
      // Someone else may have ticked it meanwhile.
      else if (box?.checked === wasDone) box.click();
    });
}
