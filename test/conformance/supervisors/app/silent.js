// Does nothing, and says nothing.
setInterval(() => {}, 1 << 30)
