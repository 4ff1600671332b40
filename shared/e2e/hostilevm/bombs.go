package hostilevm

import (
	"bytes"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// bombCases are small when sent, but large in the relay's memory or on its disk.
var bombCases = append(pictureCases, []Case{
	{
		Name: "events", About: "answers a submit with 15 MiB of empty events, which would take 3 GB of memory",
		routes: func(*fakevm.VM) routes {
			return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
				return list(finished(requestID(q)), `"events":[]`, "events")
			}}
		},
	},
	listBomb("files", "GET "+contract.PathFiles, contract.Files{Files: []contract.File{}}, `"files":[]`),
	{
		Name: "gzip", About: "answers a submit with 256 MiB of zeros, which are compressed to a thousandth",
		routes: func(*fakevm.VM) routes {
			return routes{"POST " + contract.PathExecutions: just(make([]byte, 256<<20))}
		},
	},
	{
		Name: "endless-blob", About: "shows a picture of 1 MB whose blob never ends",
		routes: func(*fakevm.VM) routes {
			part := bytes.Repeat([]byte("x"), contract.MaxBlobPart)
			return routes{
				"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
					return execution(requestID(q), picture(`{"blob":{"number":1,"sha256":"`+strings.Repeat("ab", 32)+`","bytes":1000000}}`))
				},
				"GET " + contract.PathBlob: func(question) fakevm.Reply { return fakevm.Reply{Body: part} },
			}
		},
	},
}...)

// listBomb answers route with a list of as many {} as fit into an answer.
func listBomb(name, route string, v any, empty string) Case {
	return Case{
		Name: name, About: "lists as many empty items as fit into 15 MiB",
		routes: func(*fakevm.VM) routes {
			return routes{route: func(question) fakevm.Reply { return list(v, empty, empty[1:len(empty)-len(`":[]`)]) }}
		},
	}
}

// bombBytes is the size of the items in a list. It is below every bound that the relay has
// for a whole answer.
const bombBytes = 15 << 20

// list returns v as JSON, with as many {} as fit into an answer in the list that is
// written as empty.
func list(v any, empty, field string) fakevm.Reply {
	text := marshal(v)
	full := `"` + field + `":[` + strings.Repeat("{},", bombBytes/3) + "{}]"
	return fakevm.Reply{Body: []byte(strings.Replace(string(text), empty, full, 1))}
}
