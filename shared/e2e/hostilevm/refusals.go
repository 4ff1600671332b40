package hostilevm

import (
	"encoding/json"
	"math"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// refusalCases refuse everything, each with another code, or contradict themselves.
var refusalCases = append(allRefusals(), []Case{
	refusing("refuse-unknown", contract.Error{Code: "made up" + Escape, Message: strings.Repeat(Escape, 50_000), Hint: strings.Repeat("h", 1<<20)}),
	refusing("refuse-clock", contract.Error{Code: contract.CodeClockSkew, ServerTime: math.MaxInt64}),
	{Name: "blobs", About: "shows pictures whose references have impossible numbers and sizes", routes: func(*fakevm.VM) routes {
		return with(blobEvents(
			`{"blob":{"number":0,"sha256":"`+strings.Repeat("a", 64)+`","bytes":5}}`, `{"blob":{"number":-1,"sha256":"../../x","bytes":-5}}`,
			`{"blob":{"number":2147483647,"sha256":"x","bytes":9223372036854775807}}`, `{"blob":{"number":1,"sha256":"x","bytes":0}}`, `{"blob":{}}`, `{"blob":null}`,
		), routes{"GET " + contract.PathBlob: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} }})
	}},
	{Name: "picture-900mpx", About: "shows PNGs of 30,000 × 30,000 pixels, inline and by reference", routes: func(*fakevm.VM) routes {
		giant := bigPNG(30_000, 30_000)
		return with(blobEvents(inBase64(giant), `{"blob":{"number":1,"sha256":"`+fakevm.Digest(giant)+`","bytes":`+string(marshal(len(giant)))+`}}`),
			routes{"GET " + contract.PathBlob: just(giant)})
	}},
	{Name: "markers", About: "reports iterations, cells and states that no run has", routes: func(*fakevm.VM) routes {
		return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), markers()...) }}
	}},
}...)

// allRefusals has a case for each code of the contract.
func allRefusals() (all []Case) {
	for _, code := range contract.Codes {
		all = append(all, refusing("refuse-"+string(code), contract.Error{Code: code, Message: "m" + Escape, Hint: "h" + Escape, Retryable: true, ServerTime: -1}))
	}
	return all
}

func refusing(name string, e contract.Error) Case {
	return Case{Name: name, About: "refuses everything as " + strings.TrimPrefix(name, "refuse-") + ", again and again", Slow: true, routes: func(vm *fakevm.VM) routes {
		all := routes{}
		for route := range honest(vm) {
			all[route] = func(question) fakevm.Reply { return refuse(e) }
		}
		return all
	}}
}

// blobEvents answers a submit with pictures that have these payloads.
func blobEvents(payloads ...string) routes {
	var all []contract.Event
	for _, payload := range payloads {
		all = append(all, picture(payload))
	}
	return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), all...) }}
}

// markers are displays of the relay's own types, as no code of the relay makes them.
func markers() (all []contract.Event) {
	values := []string{`{}`, `null`, `[]`, `"x"`, `-1`, `{"done":9223372036854775807,"iteration":-5,"run":"` + escaped[1:3] + `","missing":true}`, `{"manifest":{"variables":[{}]},"path":"/etc/passwd"}`}
	for _, kind := range []string{"iteration", "state", "state-progress", "cells", "missing", "install", "frames", "unheard-of"} {
		for _, value := range values {
			if json.Valid([]byte(value)) {
				all = append(all, contract.Event{Type: contract.EventDisplayData, Data: bundle(contract.OwnMIME+kind+"+json", value)})
			}
		}
	}
	return all
}
