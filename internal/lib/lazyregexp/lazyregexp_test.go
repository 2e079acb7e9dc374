package lazyregexp

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestMethodsAreThoseOfRegexp: each method gives what that of its name gives.
func TestMethodsAreThoseOfRegexp(t *testing.T) {
	const expr, text = `(?i)(b+)(c)?`, "abbc aBx"
	ours, theirs := reflect.ValueOf(lazy(expr)), reflect.ValueOf(regexp.MustCompile(expr))
	values := map[reflect.Type]reflect.Value{
		reflect.TypeFor[string]():              reflect.ValueOf(text),
		reflect.TypeFor[[]byte]():              reflect.ValueOf([]byte(text)),
		reflect.TypeFor[int]():                 reflect.ValueOf(-1),
		reflect.TypeFor[func(string) string](): reflect.ValueOf(strings.ToUpper),
	}
	if ours.NumMethod() == 0 {
		t.Fatal("there are no methods")
	}
	for i := range ours.NumMethod() {
		name := ours.Type().Method(i).Name
		var args []reflect.Value
		for k := range ours.Method(i).Type().NumIn() {
			arg := values[ours.Method(i).Type().In(k)]
			if k == 1 && arg.Kind() == reflect.String {
				arg = reflect.ValueOf("<$1>")
			}
			args = append(args, arg)
		}
		got := ours.Method(i).Call(slices.Clone(args))[0].Interface()
		want := theirs.MethodByName(name).Call(args)[0].Interface()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestAWrongExpressionEndsTheTestsOfItsPackage(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it would be found when it is used")
		}
	}()
	New("(")
}

func TestManyMayUseOne(t *testing.T) {
	re := lazy("^a+$")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if !re.MatchString("aaa") || re.MatchString("b") {
				t.Error("wrong")
			}
		})
	}
	all.Wait()
}
