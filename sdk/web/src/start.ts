// Begins the page once its first frame is drawn, which shows what index.html has.

const begin = () =>
  void import('./main.js').catch((err: unknown) => {
    // The server was away in that moment. A browser does not ask for a module again.
    if (err instanceof TypeError) setTimeout(() => location.reload(), 1000);
    else throw err;
  });

// What nobody sees has no frames.
if (document.hidden) begin();
else requestAnimationFrame(() => setTimeout(begin));
