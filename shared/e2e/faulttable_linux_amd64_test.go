package e2e

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// faultTests names, for each fault that the programs must survive, the tests that cause it alone
// with both real programs and a real kernel. Package faults causes random mixes.
var faultTests = map[string][]func(*testing.T){
	"kill -9 of the kernel during a run":         {TestKernelDeathIsReportedAndTheNextCallWorks, TestAJobStopsWhereItFails, TestARunThatBuildsUpVariablesLivesThroughKernelAndVM},
	"kill -9 of the executor":                    {TestKilledExecutorLeavesNoOrphanAndLosesNoResult, TestKillsDuringABurstOfQuickRunsLoseNoAnswer, TestRelayContinuesWithARestartedExecutor},
	"kill -9 of the relay":                       {TestLongRunSurvivesTheEndOfItsCallAndItsRelay, TestARelayThatIsKilledInTheMiddle, TestAKilledRelayLeavesNoVMUnlisted},
	"kills of all programs in turn":              {TestChunkedRunsLiveThroughKillsAndCuts, TestNotebookRunsLiveThroughKills},
	"tunnel cut for seconds":                     {TestDroppedSessionsLoseNoEvent, TestASlowTunnelThatRefusesAndDropsStillServes},
	"tunnel cut for minutes":                     {TestATunnelThatIsDownForManyCallsLosesNothing},
	"tunnel cut in a request or an answer":       {TestASubmitThatIsCutAnywhereRunsOnce, TestBigFilesTravelBothWaysAcrossTenCuts},
	"the answer to a submit lost":                {TestLostAnswerDoesNotRunTheCodeTwice, TestRetryThatReachesANewVMIsRefused},
	"the VM replaced by a new one":               {TestNewVMAtTheSameDomainNeedsNoEdit, TestRunBegunBetweenTwoVMsIsNotRunUnseen, TestARunIsFinishedOnASecondVMAfterItsStateIsRestored},
	"clock wrong by an hour":                     {TestAClockThatIsWrongByAnHour},
	"disk full on the VM":                        {TestAFullDiskOfTheVMLosesNoRun},
	"disk full on the laptop":                    {TestAFullDiskOfTheLaptopLosesNothing},
	"100 relays at once":                         {TestAHundredRelaysGetEqualParts},
	"a host that cancels, a host that goes away": {TestAHostThatCancelsOrGoesAwayLosesNothing},
	"output without end":                         {TestOutputWithoutEnd, TestAMillionLinesAreAllKept},
	"input()":                                    {TestInputIsAskedForAndGiven, TestCallsBehindARunThatWaitsForInputSayWhoseAnswerIsMissing},
	"fork bombs of children that hold sockets":   {TestAForkBombThatHoldsTheSocketsDelaysNothing},
	"unpicklable variables":                      {TestUnpicklableVariablesAreNamedAndTheOthersMove},
	"a file that changes while it is downloaded": {TestAFileThatChangesWhileItIsDownloaded},
	"a restart of the kernel by another relay":   {TestARestartByAnotherRelayIsNoErrorOfTheRun},
}

func TestEachFaultHasItsTest(t *testing.T) {
	for fault, tests := range faultTests {
		if len(tests) == 0 {
			t.Errorf("%s: no test", fault)
		}
		for _, test := range tests {
			name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
			if !strings.HasPrefix(name, "colabrelay/shared/e2e.Test") {
				t.Errorf("%s: %s is no test of this package", fault, name)
			}
			t.Logf("%s: %s", fault, name[strings.LastIndex(name, ".")+1:])
		}
	}
}
