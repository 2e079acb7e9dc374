package distant

type search struct{}
