package supervisor

import "testing"

// These are numbers in the records of services. Another number is another meaning.
func TestNumbersOfAStateKeepTheirMeaning(t *testing.T) {
	for what, n := range map[string][2]int{
		"judge": {int(thenJudge), 0}, "idle": {int(thenIdle), 1}, "restart": {int(thenRestart), 2}, "recover": {int(thenRecover), 3},
		"no hook": {int(NoHook), 0}, "pre_start": {int(PreStart), 1}, "post_start": {int(PostStart), 2}, "pre_stop": {int(PreStop), 3}, "post_stop": {int(PostStop), 4},
		"startup": {int(Startup), 0}, "readiness": {int(Readiness), 1}, "liveness": {int(Liveness), 2}, "probes": {int(roles), 3},
	} {
		if n[0] != n[1] {
			t.Errorf("%s is %d, and was %d", what, n[0], n[1])
		}
	}
}
