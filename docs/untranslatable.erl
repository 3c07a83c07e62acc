%% Takes the messages out of a queue that RabbitMQ 4 cannot translate for AMQP 0.9.1, and prints them.
%%
%%     rabbitmqctl eval_file untranslatable.erl
%%
%% Write the queue and its virtual host into the next line. All other messages stay in the queue, in their order. Messages
%% that consumers hold are not seen: run it again after the workers have stopped.
{Queue, VirtualHost} = {<<"billing.dead-letter.mail">>, <<"/">>},

{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(VirtualHost, queue, Queue)),
Name = amqqueue:get_name(Q),

IsTranslatable = fun(Message) ->
    try mc:prepare(store, mc:convert(mc_amqpl, Message)) of
        _ -> true
    catch
        _:_ -> false
    end
end,

%% Returns the messages, the last one first. Each is asked for by a consumer tag of its own, as `basic.get` does.
Take = fun Next(Tag, Taken, State0) ->
    case rabbit_amqqueue:basic_get(Q, false, self(), Tag, State0) of
        {ok, _Left, {_, _, Id, _, Message}, State} -> Next(Tag + 1, [{Tag, Id, Message} | Taken], State);
        {empty, State} -> {Taken, State}
    end
end,

%% The queue's answers make room for further calls. It has answered all of them once it is silent.
Hear = fun Next(Time, State0) ->
    receive
        {'$gen_cast', {queue_event, Name, Event}} ->
            {ok, State, _Actions} = rabbit_queue_type:handle_event(Name, Event, State0),
            Next(Time, State)
    after Time -> State0
    end
end,

Settle = fun(Operation) ->
    fun({Tag, Id, _Message}, State0) ->
        {ok, State, _Actions} = rabbit_queue_type:settle(Name, Operation, Tag, [Id], State0),
        %% Beyond 32 calls without an answer the order is lost.
        Hear(case Tag rem 16 of 0 -> 300; _ -> 0 end, State)
    end
end,

{Taken, State} = Take(1, [], rabbit_queue_type:init()),
{Others, Found} = lists:partition(fun({_, _, Message}) -> IsTranslatable(Message) end, lists:reverse(Taken)),
lists:foreach(
    fun({_, _, Message}) ->
        Sections = amqp10_framing:decode_bin(iolist_to_binary(mc:protocol_state(Message))),
        io:format("~0tp ~0tp~n", [mc:routing_keys(Message), Sections])
    end,
    Found),
Removed = lists:foldl(Settle(complete), State, Found),
Returned = lists:foldl(Settle(requeue), Removed, Others),
_ = rabbit_queue_type:close(Hear(2000, Returned)),
[{removed, length(Found)}, {left, length(Others)}].
