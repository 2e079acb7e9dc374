// Package attack has no code of its own. Below it are the attempts of those who attacked tend with fresh eyes, as tests: each is a
// sentence that says what is tried, says what would have been won, and checks that it is not, and that the daemon and its other
// clients go on.
//
//	inside    a program inside an isolated sandbox, root there or not, against the machine, the keeper and its neighbours
//	local     another user of the machine, or a web page in a person's browser, against the daemon
//	domain    a request by one name, against what has another: a neighbour's port, the page, the API
//	heal      a repository and a model, against the healer and whom it works for
package attack
