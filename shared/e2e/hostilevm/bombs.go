package hostilevm

import (
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
	{
		Name: "gzip", About: "answers a submit with 256 MiB of zeros, which are compressed to a thousandth",
		routes: func(*fakevm.VM) routes {
			return routes{"POST " + contract.PathExecutions: just(make([]byte, 256<<20))}
		},
	},
}...)

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
