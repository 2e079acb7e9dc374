package tend

// pages asks page for the parts of a list until there is no more. page returns one, and
// where the next begins: "" behind the last. after is where the one that was asked for began.
func pages[T any](c *Client, what string, after *string, page func() (part []T, next string, err error)) ([]T, error) {
	all := []T{}
	for {
		part, next, err := page()
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		switch {
		case next == "":
			return all, nil
		case len(part) == 0:
			return nil, strange("an empty page of a list of %s that is to go on", what)
		case len(all) > c.listed:
			return nil, strange("a list of more than %d %s", c.listed, what)
		case next == *after:
			return nil, strange("the same page of a list of %s again", what)
		}
		*after = next
	}
}
