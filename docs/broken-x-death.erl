%% Starts a node's at-least-once dead-lettering again that a message with a broken x-death header has stopped.
%%
%%     rabbitmqctl eval_file broken-x-death.erl
%%
%% For RabbitMQ 3.10 to 3.12; later versions do not have what it calls, and it does nothing there. It takes the place of
%% RabbitMQ's own dead-letter workers, looks at what waits for them, publishes each message that they die of without the
%% header, to where it was to go, and only then takes it out of its queue. All other messages stay where they are, in
%% their order, for the workers that are started at the end. Run it again if it stops half-way or is killed.

Setting = fun(Name, Q) ->
    rabbit_queue_type_util:args_policy_lookup(Name, fun(_Policy, Argument) -> Argument end, Q)
end,

IsAtLeastOnce = fun(Q) ->
    amqqueue:get_type(Q) =:= rabbit_quorum_queue
        andalso Setting(<<"dead-letter-strategy">>, Q) =:= <<"at-least-once">>
        andalso lists:member(node(), maps:get(nodes, amqqueue:get_type_state(Q), []))
end,

%% The replica on this node.
Server = fun(Q) -> {element(1, amqqueue:get_pid(Q)), node()} end,

%% `undefined` too if the server dies while it is asked.
Leader = fun(Asked) ->
    try ra:members(Asked) of
        {ok, _, {_, _} = Found} -> Found;
        _ -> undefined
    catch
        _:_ -> undefined
    end
end,

IsUp = fun(Q) -> whereis(element(1, Server(Q))) =/= undefined end,

%% A queue that was to get a leader here while its worker had no supervisor. Nothing reaches it, and it is no target.
BringUp = fun(Q) ->
    case whereis(rabbit_fifo_dlx_sup) of
        undefined ->
            _ = supervisor:terminate_child(rabbit_sup, rabbit_fifo_dlx_sup),
            {ok, _} = supervisor:restart_child(rabbit_sup, rabbit_fifo_dlx_sup);
        _ -> ok
    end,
    _ = ra:restart_server(quorum_queues, Server(Q)),
    Wait = fun Again(Looks) ->
        case Leader(Server(Q)) of
            undefined when Looks > 0 -> timer:sleep(100), Again(Looks - 1);
            _ -> ok
        end
    end,
    Wait(100)
end,

%% How many messages wait for the dead-letter worker.
Waiting = fun(Q) ->
    {ok, {_, {Count, _Bytes}}, _} = ra:local_query(Server(Q), fun rabbit_fifo:query_stat_dlx/1),
    Count
end,

%% They come as they would come to the worker.
Receive = fun
    Next(Left, _, Got) when Left =< 0 -> Got;
    Next(Left, Client0, Got) ->
        receive
            {'$gen_cast', {queue_event, _, {From, Event}}} ->
                {ok, Client, Actions} = rabbit_fifo_dlx_client:handle_ra_event(From, Event, Client0),
                Messages = lists:append([Delivered || {deliver, Delivered} <- Actions]),
                Next(Left - length(Messages), Client, Got ++ Messages)
        after 60000 -> exit("no answer; run it again")
        end
end,

%% Whether the worker dies of it.
IsBroken = fun(Message, Reason, Exchange, Name) ->
    try rabbit_dead_letter:make_msg(Message, Reason, Exchange, undefined, Name) of
        _ -> false
    catch
        _:_ -> true
    end
end,

Header = <<"x-death">>,

WithoutDeath = fun(Message) ->
    Content = rabbit_basic:map_headers(fun(Headers) -> lists:keydelete(Header, 1, Headers) end, element(4, Message)),
    setelement(4, Message, Content)
end,

%% What is published to a queue without a leader is lost. Classic queues of this node are always there.
RequireTargets = fun(Message, Reason, To, Name) ->
    Sent = rabbit_dead_letter:make_msg(WithoutDeath(Message), Reason, element(2, To), undefined, Name),
    Targets = rabbit_amqqueue:lookup(rabbit_exchange:route(To, rabbit_basic:delivery(false, false, Sent, undefined))),
    lists:foreach(
        fun(Q) ->
            case amqqueue:get_type(Q) =:= rabbit_quorum_queue andalso Leader(amqqueue:get_pid(Q)) of
                undefined -> exit("a queue that it was to go to has no leader; run it again");
                _ -> ok
            end
        end,
        Targets)
end,

UntilLeft = fun Again(Q, Count, Looks) ->
    case Waiting(Q) of
        Now when Now =< Count -> ok;
        _ when Looks > 0 -> timer:sleep(100), Again(Q, Count, Looks - 1);
        _ -> exit("not taken out; run it again")
    end
end,

%% Answers how many were broken.
Mend = fun(Q) ->
    Name = {resource, VirtualHost, queue, _} = amqqueue:get_name(Q),
    Exchange = rabbit_misc:r(VirtualHost, exchange, Setting(<<"dead-letter-exchange">>, Q)),
    Count = Waiting(Q),
    {ok, Client} = rabbit_fifo_dlx_client:checkout(Name, Server(Q), max(1, Count)),
    Broken = [{Id, Message, Reason} || {_, Id, Message, Reason} <- Receive(Count, Client, []),
                                       IsBroken(Message, Reason, Exchange, Name)],
    lists:foreach(
        fun({Id, Message, Reason}) ->
            {ok, To} = rabbit_exchange:lookup(Exchange),
            RequireTargets(Message, Reason, To, Name),
            io:format("~ts: published again without its ~ts:~n~0tp~n", [rabbit_misc:rs(Name), Header, Message]),
            ok = rabbit_dead_letter:publish(WithoutDeath(Message), Reason, To, undefined, Name),
            {ok, _} = rabbit_fifo_dlx_client:settle([Id], Client)
        end,
        Broken),
    ok = UntilLeft(Q, Count - length(Broken), 600),
    length(Broken)
end,

%% In a process of its own: no worker is started for a queue whose last one is alive.
Apart = fun(Do) ->
    {_, Monitor} = spawn_monitor(fun() -> exit({done, Do()}) end),
    receive {'DOWN', Monitor, process, _, {done, Answer}} -> Answer;
            {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end
end,

code:ensure_loaded(rabbit_dead_letter),
case erlang:function_exported(rabbit_dead_letter, make_msg, 5) of
    false ->
        'nothing is done: this file is for RabbitMQ 3.10 to 3.12, and RabbitMQ 4 needs no mend';
    true ->
        Queues = lists:filter(IsAtLeastOnce, rabbit_amqqueue:list()),
        Down = lists:filter(fun(Q) -> not IsUp(Q) end, Queues),
        lists:foreach(BringUp, Down),
        _ = supervisor:terminate_child(rabbit_sup, rabbit_fifo_dlx_sup),
        Led = lists:filter(fun(Q) -> Leader(Server(Q)) =:= Server(Q) end, Queues),
        Mended = lists:sum([Apart(fun() -> Mend(Q) end) || Q <- Led, Waiting(Q) > 0]),
        {ok, _} = supervisor:restart_child(rabbit_sup, rabbit_fifo_dlx_sup),
        lists:foreach(fun(Q) -> ra:cast_aux_command(Server(Q), {dlx, setup}) end, Led),
        [{broken, Mended}, {started, length(Led)}, {restarted, length(lists:filter(IsUp, Down))}]
end.
