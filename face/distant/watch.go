package distant

type watch struct{}

func (w *watch) close() {}
