// Draws at most once in a frame.

/** Calls f in the next frame, once, however often it is asked for it until then. */
export function perFrame(f: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      f();
    });
  };
}
